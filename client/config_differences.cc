#include "client/config_differences.h"

#include <algorithm>
#include <map>

#include "client/describe.h"
#include "kernels/core/field_path.h"

namespace hbmtune::client {
namespace {

using Parts = std::vector<std::string>;

bool Has(const Parts& parts, const std::string& part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

std::string Join(const Parts& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

// Fields in which the configs at `places` are not all alike, as "zero.sub-group-size 2e8" each.
void TellFields(const std::vector<TrainConfig>& configs, const std::vector<size_t>& places,
                std::vector<std::string>& own) {
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    const auto value = [&](size_t place) { return GetField(configs[place], path); };
    const bool alike = std::all_of(places.begin(), places.end(), [&](size_t place) {
      return value(place) == value(places.front());
    });
    if (alike) continue;
    for (size_t place : places) {
      own[place] += (own[place].empty() ? "" : ", ") + DescribeField(configs[place], path);
    }
  }
}

}  // namespace

ConfigsApart DescribeApart(const std::vector<TrainConfig>& configs, Framework framework) {
  std::vector<Parts> described;
  for (const TrainConfig& config : configs) {
    described.push_back(DescribeParts(config, framework));
  }
  ConfigsApart apart;
  Parts common;
  if (!described.empty()) common = described.front();
  std::erase_if(common, [&](const std::string& part) {
    return !std::all_of(described.begin(), described.end(),
                        [&](const Parts& parts) { return Has(parts, part); });
  });
  apart.common = Join(common);
  std::map<std::string, std::vector<size_t>> alike;
  for (size_t i = 0; i < described.size(); ++i) {
    std::erase_if(described[i], [&](const std::string& part) { return Has(common, part); });
    apart.own.push_back(Join(described[i]));
    alike[apart.own.back()].push_back(i);
  }
  for (const auto& [text, places] : alike) TellFields(configs, places, apart.own);
  for (std::string& text : apart.own) {
    if (text.empty()) text = "–";
  }
  return apart;
}

}  // namespace hbmtune::client

#include "client/compare_devices.h"

#include <algorithm>
#include <stdexcept>

#include "client/compare_report.h"
#include "client/flags.h"
#include "client/text.h"
#include "kernels/core/nearest.h"

namespace hbmtune::client {
namespace {

constexpr double kMostDollars = 1e6;  // an hour

std::string FullName(const std::string& name) {
  return name.starts_with("model:") ? name : "model:" + name;
}

absl::Status NoProfile(const std::string& name, const Profiles& profiles) {
  std::vector<std::string> known;
  for (const auto& [full, device] : profiles) known.push_back(ShortName(full));
  return absl::InvalidArgumentError("--device: there is no profile '" + name + "'" +
                                    DidYouMean(ShortName(name), known) + "; there are " +
                                    JoinWords(known, "and"));
}

}  // namespace

absl::StatusOr<Profiles> ListProfiles(const Connection& connection) {
  auto all = Call(connection.devices(), &v1::Devices::StubInterface::ListDevices,
                  v1::ListDevicesRequest());
  if (!all.ok()) return all.status();
  Profiles profiles;
  for (const v1::Device& device : all->devices()) {
    if (device.kind() == v1::DEVICE_KIND_MODEL) profiles[device.name()] = device;
  }
  return profiles;
}

absl::StatusOr<std::vector<Compared>> Choose(const std::vector<std::string>& names,
                                             const Profiles& profiles) {
  std::vector<Compared> chosen;
  for (const auto& [full, device] : profiles) {
    if (names.empty() && full != "model:host") chosen.push_back({device, {}, {}, {}});
  }
  for (const std::string& name : names) {
    auto found = profiles.find(FullName(name));
    if (found == profiles.end()) return NoProfile(name, profiles);
    const bool twice = std::any_of(chosen.begin(), chosen.end(), [&](const Compared& other) {
      return other.device.name() == found->first;
    });
    if (!twice) chosen.push_back({found->second, {}, {}, {}});
  }
  return chosen;
}

absl::StatusOr<std::pair<std::string, double>> ParsePrice(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError("--price: '" + text + "' is not NAME=DOLLARS, like "
                                      "mi300x=2.40");
  }
  const std::string dollars = text.substr(equals + 1);
  double price = 0;
  try {
    price = internal::ParseReal(dollars).get<double>();
  } catch (const std::invalid_argument&) {
  }
  if (price <= 0 || price > kMostDollars) {
    return absl::InvalidArgumentError("--price: '" + dollars +
                                      "' is not dollars an hour, over 0 and up to 1,000,000");
  }
  return std::pair(FullName(text.substr(0, equals)), price);
}

absl::Status SetPrices(const std::vector<std::string>& prices, std::vector<Compared>& compared) {
  for (const std::string& text : prices) {
    auto price = ParsePrice(text);
    if (!price.ok()) return price.status();
    const std::string name = ShortName(price->first);
    auto found = std::find_if(compared.begin(), compared.end(), [&](const Compared& device) {
      return device.device.name() == price->first;
    });
    if (found == compared.end()) {
      std::vector<std::string> names;
      for (const Compared& device : compared) names.push_back(ShortName(device.device.name()));
      return absl::InvalidArgumentError("--price: '" + name + "' is not compared" +
                                        DidYouMean(name, names) + "; compared are " +
                                        JoinWords(names, "and"));
    }
    if (found->dollars_per_hour) {
      return absl::InvalidArgumentError("--price: " + name + " has two prices");
    }
    found->dollars_per_hour = price->second;
  }
  return absl::OkStatus();
}

}  // namespace hbmtune::client

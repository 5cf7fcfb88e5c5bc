#include "kernels/device/profile.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <sstream>
#include <toml++/toml.h>

#include "kernels/core/json.h"
#include "kernels/device/profiles/embedded.h"

namespace hbmtune::device {
namespace {

int64_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), int64_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      int64_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string NearestName(std::string_view name) {
  auto names = ProfileNames();
  return *std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return EditDistance(name, a) < EditDistance(name, b);
  });
}

// Figures without a value say "unknown"; a value without a kind is not accepted.
absl::Status CheckFigures(const DeviceProfile& profile) {
  absl::Status status;
  DeviceProfile::VisitFigures(profile, [&](const Field& field, const Figure& figure) {
    if (!status.ok()) return;
    if (figure.source.empty()) {
      status = absl::InvalidArgumentError(
          "profile " + profile.name + ": " + std::string(field.name) + " has no source");
    } else if (figure.known() ? figure.value < 0 : figure.value != 0) {
      status = absl::InvalidArgumentError(
          "profile " + profile.name + ": " + std::string(field.name) +
          (figure.known() ? " is negative" : " is unknown but has a value"));
    }
  });
  for (const OpPoint& point : profile.op_points) {
    if (point.op.empty() || !(point.work > 0) || !(point.seconds > 0)) {
      return absl::InvalidArgumentError("profile " + profile.name + ": a point of '" + point.op +
                                        "' needs an op, and work and seconds over 0");
    }
  }
  return status;
}

}  // namespace

int64_t DeviceProfile::workspace_bytes() const {
  const Figure& figure = blaslt_workspace_bytes.known() ? blaslt_workspace_bytes
                                                        : blas_workspace_bytes;
  return static_cast<int64_t>(figure.value);
}

int64_t DeviceProfile::library_bytes(int64_t world_size) const {
  double bytes = code_object_bytes.value + scratch_bytes.value;
  if (world_size > 1) {
    bytes += communicator_bytes.known() ? communicator_bytes.value
                                        : rccl_channels.value * rccl_channel_bytes.value;
  }
  return static_cast<int64_t>(bytes);
}

FigureCounts CountFigures(const DeviceProfile& profile) {
  std::array<int64_t, 4> counts{};
  DeviceProfile::VisitFigures(profile, [&](const Field&, const Figure& figure) {
    ++counts[static_cast<size_t>(figure.kind)];
  });
  auto count = [&](FigureKind kind) { return counts[static_cast<size_t>(kind)]; };
  return {count(FigureKind::kUnknown), count(FigureKind::kDatasheet),
          count(FigureKind::kMeasured) + static_cast<int64_t>(profile.op_points.size()),
          count(FigureKind::kDerived)};
}

std::vector<std::string> ProfileNames() {
  std::vector<std::string> names;
  for (const EmbeddedProfile& profile : EmbeddedProfiles()) names.emplace_back(profile.name);
  return names;
}

absl::StatusOr<DeviceProfile> ParseProfile(std::string_view toml_text) {
  DeviceProfile profile;
  try {
    std::ostringstream json;
    json << toml::json_formatter(toml::parse(toml_text));
    FromJson(Json::parse(json.str()), profile);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError("profile: line " + std::to_string(error.source().begin.line) +
                                      ": " + std::string(error.description()));
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(std::string("profile: ") + error.what());
  }
  if (auto status = CheckFigures(profile); !status.ok()) return status;
  return profile;
}

absl::StatusOr<DeviceProfile> FindProfile(std::string_view name, const std::string& directory) {
  if (!directory.empty()) {
    std::filesystem::path path = std::filesystem::path(directory) / (std::string(name) + ".toml");
    if (std::ifstream file(path); file) {
      std::stringstream text;
      text << file.rdbuf();
      return ParseProfile(text.str());
    }
  }
  for (const EmbeddedProfile& profile : EmbeddedProfiles()) {
    if (profile.name == name) return ParseProfile(profile.toml);
  }
  return absl::NotFoundError("no profile of a device named '" + std::string(name) +
                             "': did you mean " + NearestName(name) + "?");
}

namespace {

bool CountsFlops(const Cost& cost) {
  return cost.kind == CostClass::kMatmul || cost.kind == CostClass::kAttention;
}

double Work(const Cost& cost) {
  return CountsFlops(cost) ? cost.flops : cost.bytes_read + cost.bytes_written;
}

double LogRatio(double a, double b) { return std::log(std::max(a, 1.0) / std::max(b, 1.0)); }

// Between measured calls: the rate is their mean in logarithms, weighted by the inverse fourth
// power of the distance in the logarithms of shape and work (Shepard 1968), so that the nearest
// counts most and no rate is beyond what was measured.
std::optional<double> MeasuredSeconds(const DeviceProfile& profile, std::string_view op,
                                      const Cost& cost, Dtype dtype) {
  const double work = Work(cost);
  double weights = 0, logs = 0;
  for (const OpPoint& point : profile.op_points) {
    if (point.op != op || point.dtype != dtype) continue;
    double distance = 1e-6;  // of a call that was measured itself
    for (const double ratio :
         {LogRatio(static_cast<double>(point.m), static_cast<double>(cost.m)),
          LogRatio(static_cast<double>(point.n), static_cast<double>(cost.n)),
          LogRatio(static_cast<double>(point.k), static_cast<double>(cost.k)),
          LogRatio(point.work, work)}) {
      distance += ratio * ratio;
    }
    const double weight = 1 / (distance * distance);
    weights += weight;
    logs += weight * std::log(point.work / point.seconds);
  }
  if (weights == 0) return std::nullopt;
  return work / std::exp(logs / weights);
}

// Share of the compute units that work, on average over the waves of 128 × 128 tiles.
double WaveRatio(const DeviceProfile& profile, const Cost& cost) {
  constexpr int64_t kTile = 128;
  if (cost.m <= 0 || cost.n <= 0 || cost.k <= 0) return 1;
  double batches = std::max(1.0, cost.flops / (2.0 * cost.m * cost.n * cost.k));
  double tiles = std::ceil(batches) * ((cost.m + kTile - 1) / kTile) *
                 ((cost.n + kTile - 1) / kTile);
  double units = std::max(1.0, profile.compute_units.value);
  double useful = batches * cost.m * cost.n / (1.0 * kTile * kTile);
  return std::min(1.0, useful / (std::ceil(tiles / units) * units));
}

double ArithmeticSeconds(const DeviceProfile& profile, const Cost& cost, Dtype dtype) {
  double peak = IsHalf(dtype) ? profile.half_flops_per_second.value
                              : profile.fp32_flops_per_second.value;
  switch (cost.kind) {
    case CostClass::kMatmul:
      return cost.flops / (peak * profile.matmul_efficiency_ratio.value * WaveRatio(profile, cost));
    case CostClass::kAttention:
      return cost.flops / (peak * profile.attention_efficiency_ratio.value);
    default:
      return cost.flops / profile.fp32_flops_per_second.value;
  }
}

}  // namespace

double KernelSeconds(const DeviceProfile& profile, std::string_view op, const Cost& cost,
                     Dtype dtype) {
  const double least = cost.kernels * profile.kernel_seconds.value;
  if (const auto seconds = MeasuredSeconds(profile, op, cost, dtype)) {
    return std::max(*seconds, least);
  }
  double traffic = (cost.bytes_read + cost.bytes_written) /
                   (profile.memory_bytes_per_second.value * profile.memory_efficiency_ratio.value);
  double arithmetic = cost.flops > 0 ? ArithmeticSeconds(profile, cost, dtype) : 0;
  return std::max({traffic, arithmetic, least});
}

}  // namespace hbmtune::device

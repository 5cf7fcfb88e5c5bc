#include "daemon/studies/plan.h"

#include <absl/strings/str_cat.h>

#include "daemon/base/errors.h"
#include "kernels/core/units.h"
#include "tuner/predict/predict.h"

namespace hbmtune::daemon {
namespace {

absl::StatusOr<tuner::Pins> ParsePins(const PinTexts& texts) {
  tuner::Pins pins;
  for (const auto& [path, value] : texts) {
    absl::Status status = tuner::ParsePin(absl::StrCat(path, "=", value), pins);
    if (!status.ok()) return FieldError(absl::StrCat("pins.", path), status);
  }
  return pins;
}

// Whether a probe can be kept to this GPU, and its trials be estimated before they run.
absl::Status CheckGpu(const DeviceInfo& gpu) {
  if (gpu.partitioned) {
    return FieldError("device", absl::StrCat(gpu.name, " is a partition, or cut into some: only "
                                             "whole GPUs (SPX) are tuned"));
  }
  if (gpu.profile.name.empty()) {
    return FieldError("device", absl::StrCat("there is no profile of ", gpu.name, ", a ",
                                             gpu.product, ", so nothing could be estimated"));
  }
  if (!gpu.unique_id.empty()) return absl::OkStatus();
  return FieldError("device", absl::StrCat("the driver tells no unique_id of ", gpu.name,
                                           ", by which a probe would be kept to it"));
}

}  // namespace

absl::StatusOr<Ceiling> ResolveCeiling(const Ceiling& ceiling, const DeviceInfo& device) {
  Ceiling resolved = ceiling;
  if (ceiling.capacity_bytes < 0 || ceiling.device_bytes < 0 || ceiling.host_bytes < 0) {
    return FieldError("ceiling", "a memory ceiling must not be negative");
  }
  if (device.kind != DeviceKind::kModel) {
    const bool host = device.kind == DeviceKind::kHost;
    if (resolved.capacity_bytes == 0 && host) resolved.capacity_bytes = device.memory_bytes / 2;
    if (resolved.capacity_bytes > device.memory_bytes) {
      return FieldError("ceiling.capacity_bytes",
                        absl::StrCat("a budget of ", FormatBytes(resolved.capacity_bytes),
                                     " is more than ", host ? "this machine" : device.name,
                                     "'s ", FormatBytes(device.memory_bytes)));
    }
  }
  // A budget bounds what there is; without one it is what the device has.
  const int64_t there = resolved.capacity_bytes > 0 ? resolved.capacity_bytes
                        : device.memory_bytes > 0
                            ? device.memory_bytes
                            : static_cast<int64_t>(device.profile.capacity_bytes.value);
  if (there > 0 && resolved.device_bytes > there) {
    return FieldError("ceiling.device_bytes",
                      absl::StrCat("a ceiling of ", FormatBytes(resolved.device_bytes),
                                   " is more than the ", FormatBytes(there), " that there are"));
  }
  return resolved;
}

absl::StatusOr<StudyPlan> MakePlan(const StudySpec& spec, const Catalogue& catalogue) {
  auto device = catalogue.Find(spec.device);
  if (!device.ok()) return device.status();
  if (device->kind == DeviceKind::kGpu) {
    if (absl::Status status = CheckGpu(*device); !status.ok()) return status;
  }
  auto ceiling = ResolveCeiling(spec.ceiling, *device);
  if (!ceiling.ok()) return ceiling.status();
  if (absl::Status status = tuner::ValidateWorkload(spec.workload); !status.ok()) {
    return FieldError("workload", status);
  }
  auto pins = ParsePins(spec.pins);
  if (!pins.ok()) return pins.status();
  const tuner::DeviceFacts facts{device->kind == DeviceKind::kHost};
  auto space = tuner::Space::Create(spec.workload, facts, *pins);
  if (!space.ok()) return FieldError(pins->empty() ? "workload" : "pins", space.status());
  return StudyPlan{*std::move(device), *ceiling, *std::move(space)};
}

tuner::Estimator StudyPlan::MakeEstimator() const {
  return [workload = space.workload(), profile = device.profile,
          limit = ceiling](const TrainConfig& config) {
    return Predict(workload, config, profile, limit);
  };
}

tuner::History HistoryOf(const std::vector<TrialRecord>& trials) {
  tuner::History history;
  for (const TrialRecord& trial : trials) {
    if (trial.state != TrialState::kFinished) continue;
    history.push_back({trial.config, trial.estimate, trial.measurement, true, trial.seconds});
  }
  return history;
}

}  // namespace hbmtune::daemon

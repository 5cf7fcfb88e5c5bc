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

}  // namespace

absl::StatusOr<Ceiling> ResolveCeiling(const Ceiling& ceiling, const DeviceInfo& device) {
  Ceiling resolved = ceiling;
  if (ceiling.capacity_bytes < 0 || ceiling.device_bytes < 0 || ceiling.host_bytes < 0) {
    return FieldError("ceiling", "a memory ceiling must not be negative");
  }
  if (device.kind == DeviceKind::kHost) {
    if (resolved.capacity_bytes == 0) resolved.capacity_bytes = device.memory_bytes / 2;
    if (resolved.capacity_bytes > device.memory_bytes) {
      return FieldError("ceiling.capacity_bytes",
                        absl::StrCat("a budget of ", FormatBytes(resolved.capacity_bytes),
                                     " is more than this machine's ",
                                     FormatBytes(device.memory_bytes)));
    }
  }
  return resolved;
}

absl::StatusOr<StudyPlan> MakePlan(const StudySpec& spec, const Catalogue& catalogue) {
  auto device = catalogue.Find(spec.device);
  if (!device.ok()) return device.status();
  if (device->kind == DeviceKind::kGpu) {
    return FieldError("device", absl::StrCat("probes on a GPU (", device->name,
                                             ") are not built yet: tune for its model, as "
                                             "model:mi210, or on host"));
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

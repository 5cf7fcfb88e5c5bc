#pragma once

#include <absl/status/statusor.h>
#include <cstdint>

#include "kernels/core/step_timeline.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/device/profile.h"
#include "tuner/predict/predict.h"

namespace hbmtune {

// The curve behind Predict, from the same dry run: at most `points` of it, peaks kept.
// FAILED_PRECONDITION where the estimate is a sum of parts rather than a dry run; else errors as
// Predict's. Thread-safe.
absl::StatusOr<StepTimeline> PredictTimeline(const Workload& workload, const TrainConfig& config,
                                             const device::DeviceProfile& profile,
                                             const Ceiling& ceiling, int64_t points);

}  // namespace hbmtune

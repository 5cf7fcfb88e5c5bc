#pragma once

#include <absl/status/statusor.h>

#include "daemon/devices/catalogue.h"
#include "hbmtune/v1/tuning.pb.h"
#include "kernels/core/workload.h"
#include "tuner/predict/predict.h"
#include "tuner/space/space.h"

namespace hbmtune::daemon {

// What is asked of a modelled device, but for the train config.
struct Question {
  DeviceInfo device;
  Ceiling ceiling;  // with the capacity filled in where the device has none of its own
  Workload workload;

  tuner::DeviceFacts facts() const { return {device.kind == DeviceKind::kHost}; }
};

// INVALID_ARGUMENT or NOT_FOUND with the field that is wrong.
absl::StatusOr<Question> ParseQuestion(const std::string& device, const v1::Ceiling& ceiling,
                                       const v1::Workload& workload,
                                       const v1::ModelSource& model, const Catalogue& catalogue);

// What Predict says. A lowering that meets what it does not expect throws: of one config among
// many that is INTERNAL, not the end of all of them.
absl::StatusOr<Estimate> Ask(const Question& question, const Workload& workload,
                             const TrainConfig& config);

}  // namespace hbmtune::daemon

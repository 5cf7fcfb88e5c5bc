#include "daemon/services/question.h"

#include <exception>

#include "daemon/base/errors.h"
#include "daemon/services/requests.h"
#include "daemon/studies/plan.h"
#include "proto/convert.h"

namespace hbmtune::daemon {

absl::StatusOr<Question> ParseQuestion(const std::string& device, const v1::Ceiling& ceiling,
                                       const v1::Workload& workload,
                                       const v1::ModelSource& model, const Catalogue& catalogue) {
  auto found = catalogue.Find(device);
  if (!found.ok()) return found.status();
  if (found->kind == DeviceKind::kGpu) {
    return FieldError("device", "estimates are made for models of GPUs, as model:mi210");
  }
  auto resolved = ResolveCeiling(FromProto<Ceiling>(ceiling), *found);
  if (!resolved.ok()) return resolved.status();
  auto parsed = ParseWorkload(workload, model);
  if (!parsed.ok()) return parsed.status();
  return Question{*std::move(found), *resolved, *std::move(parsed)};
}

absl::StatusOr<Estimate> Ask(const Question& question, const Workload& workload,
                             const TrainConfig& config) {
  try {
    return Predict(workload, config, question.device.profile, question.ceiling);
  } catch (const std::exception& error) {
    return absl::InternalError(std::string("a fault of the model: ") + error.what());
  }
}

}  // namespace hbmtune::daemon

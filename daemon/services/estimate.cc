#include "daemon/base/errors.h"
#include "daemon/services/question.h"
#include "daemon/services/requests.h"
#include "daemon/services/tuning_service.h"
#include "proto/convert.h"
#include "tuner/predict/predict.h"
#include "tuner/predict/timeline.h"
#include "tuner/recommend/effects.h"

namespace hbmtune::daemon {
namespace {

constexpr int64_t kMostPoints = 10'000;

absl::Status AddTimeline(const Question& question, const TrainConfig& config, int64_t points,
                         v1::EstimateResponse& response) {
  if (points < 0 || points > kMostPoints) {
    return FieldError("timeline_points", "timeline_points must be between 0 and 10,000");
  }
  if (points == 0) return absl::OkStatus();
  auto timeline = PredictTimeline(question.workload, config, question.device.profile,
                                  question.ceiling, points);
  if (!timeline.ok()) return timeline.status();
  ToProto(*timeline, *response.mutable_timeline());
  return absl::OkStatus();
}

void AddEffects(const Question& question, const TrainConfig& config, const Estimate& estimate,
                v1::EstimateResponse& response) {
  auto estimator = [&](const Workload& workload, const TrainConfig& changed) {
    return Ask(question, workload, changed);
  };
  for (const Effect& effect :
       tuner::Effects(question.workload, question.facts(), config, estimate, estimator)) {
    ToProto(effect, *response.add_effects());
  }
}

}  // namespace

absl::Status TuningService::DoEstimate(const v1::EstimateRequest& request,
                                       v1::EstimateResponse& response) {
  if (absl::Status status = CheckEnums(request); !status.ok()) return status;
  auto question = ParseQuestion(request.device(), request.ceiling(), request.workload(),
                                request.model(), parts_.catalogue);
  if (!question.ok()) return question.status();
  const Workload& workload = question->workload;
  auto config = ParseTrainConfig(request.train_config(), workload, question->facts().host);
  if (!config.ok()) return config.status();
  auto estimate = Predict(workload, *config, question->device.profile, question->ceiling);
  if (!estimate.ok()) return FieldError("train_config", estimate.status());
  ToProto(*estimate, *response.mutable_estimate());
  ToProto(workload, *response.mutable_workload());
  ToProto(*config, *response.mutable_train_config());
  if (request.explain()) AddEffects(*question, *config, *estimate, response);
  return AddTimeline(*question, *config, request.timeline_points(), response);
}

}  // namespace hbmtune::daemon

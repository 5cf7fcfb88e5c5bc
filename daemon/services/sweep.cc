#include "daemon/base/errors.h"
#include "daemon/services/requests.h"
#include "daemon/services/status.h"
#include "daemon/services/sweep_stream.h"
#include "daemon/services/tuning_service.h"

namespace hbmtune::daemon {
namespace {

absl::StatusOr<tuner::Pins> ParsePins(
    const google::protobuf::Map<std::string, std::string>& texts, const std::string& field) {
  tuner::Pins pins;
  for (const auto& [path, value] : texts) {
    absl::Status status = tuner::ParsePin(path + "=" + value, pins);
    if (!status.ok()) return FieldError(field + "." + path, status);
  }
  return pins;
}

absl::StatusOr<SweepPlan> GridPlan(const v1::SweepRequest& request, Question question) {
  auto values = ParsePins(request.grid(), "grid");
  if (!values.ok()) return values.status();
  // What makes it illegal may be a field that the grid sets: each combination is checked when it
  // is estimated.
  const TrainConfig base = UncheckedTrainConfig(request.train_config(), question.workload,
                                                question.facts().host);
  auto grid = tuner::Grid::Create(question.workload, base, *values);
  if (!grid.ok()) return FieldError("grid", grid.status());
  const int64_t total = grid->Count();
  return SweepPlan{std::move(question),
                   [grid = *grid](const tuner::Visitor& visit) { grid.ForEach(visit); }, total,
                   request.every()};
}

absl::StatusOr<SweepPlan> SpacePlan(const v1::SweepRequest& request, Question question) {
  auto pins = ParsePins(request.pins(), "pins");
  if (!pins.ok()) return pins.status();
  auto space = tuner::Space::Create(question.workload, question.facts(), *pins);
  if (!space.ok()) return FieldError(pins->empty() ? "workload" : "pins", space.status());
  const int64_t total = space->Count();
  return SweepPlan{std::move(question),
                   [space = *space](const tuner::Visitor& visit) { space.ForEach(visit); }, total,
                   request.every()};
}

absl::StatusOr<SweepPlan> MakeSweepPlan(const v1::SweepRequest& request,
                                        const Catalogue& catalogue) {
  if (absl::Status status = CheckEnums(request); !status.ok()) return status;
  auto question = ParseQuestion(request.device(), request.ceiling(), request.workload(),
                                request.model(), catalogue);
  if (!question.ok()) return question.status();
  if (!request.grid().empty() && !request.pins().empty()) {
    return FieldError("pins", "a sweep takes a grid or pins, not both");
  }
  return request.grid().empty() ? SpacePlan(request, *std::move(question))
                                : GridPlan(request, *std::move(question));
}

}  // namespace

grpc::ServerWriteReactor<v1::SweepEvent>* TuningService::Sweep(
    grpc::CallbackServerContext* context, const v1::SweepRequest* request) {
  if (auto caller = answer_.Check(context, "Sweep"); !caller.ok()) {
    return RefuseSweep(ToGrpc(caller.status()));
  }
  auto plan = MakeSweepPlan(*request, parts_.catalogue);
  if (!plan.ok()) return RefuseSweep(ToGrpc(plan.status()));
  return StreamSweep(*std::move(plan));
}

}  // namespace hbmtune::daemon

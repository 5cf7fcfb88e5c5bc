#include "client/conclude.h"

#include "client/interrupt.h"
#include "client/output_json.h"
#include "client/progress.h"
#include "client/report.h"

namespace hbmtune::client {
namespace {

void PrintNext(const RecommendationOutput& recommendation, bool local, Terminal& terminal) {
  Framework framework = recommendation.workload.framework;
  std::string tail = NumberOf(recommendation.study) + (local ? " --local" : "");
  std::string format = "hf > training_args.json";
  if (framework == Framework::kFused) format = "env";
  if (UsesDeepspeed(framework)) format = "deepspeed > ds_config.json";
  terminal.Print("");
  terminal.Print("next:  hbmtune export " + tail + " --format " + format);
  terminal.Print("       hbmtune show " + tail + " --why");
  terminal.Print("       hbmtune estimate --from " + tail);
}

ExitCode CodeOf(const v1::Study& study, const RecommendationOutput* recommendation) {
  if (study.state() == v1::STUDY_STATE_CANCELLED) return Interrupted() ? kInterrupted : kFailed;
  return recommendation != nullptr && recommendation->train_config ? kDone : kNothingFits;
}

}  // namespace

absl::StatusOr<v1::Recommendation> RecommendFor(const Connection& connection,
                                                const std::string& study) {
  v1::RecommendRequest request;
  request.set_study(study);
  return Call(connection.tuning(), &v1::Tuning::StubInterface::Recommend, request);
}

absl::StatusOr<ExitCode> Conclude(const Connection& connection, const v1::Study& study,
                                  bool local, bool json, Terminal& terminal) {
  if (study.state() == v1::STUDY_STATE_FAILED) {
    return absl::InternalError("study " + NumberOf(study.name()) + " failed: " + study.message());
  }
  absl::StatusOr<v1::Recommendation> answer = RecommendFor(connection, study.name());
  bool no_trial = absl::IsFailedPrecondition(answer.status());
  if (!answer.ok() && !(no_trial && study.state() == v1::STUDY_STATE_CANCELLED)) {
    return answer.status();
  }
  if (!answer.ok()) {
    Report(absl::AbortedError("study " + NumberOf(study.name()) +
                              " was cancelled before a trial had finished"));
    return CodeOf(study, nullptr);
  }
  RecommendationOutput recommendation = ToOutput(*answer);
  recommendation.state = StateName(study.state());
  if (json) {
    PrintJson(ToJson(recommendation));
  } else {
    PrintRecommendation(terminal, recommendation);
    if (recommendation.train_config) PrintNext(recommendation, local, terminal);
  }
  return CodeOf(study, &recommendation);
}

}  // namespace hbmtune::client

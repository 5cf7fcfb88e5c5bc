#include "client/conclude.h"

#include "client/interrupt.h"
#include "client/output_json.h"
#include "client/progress.h"
#include "client/report.h"

namespace hbmtune::client {
namespace {

void PrintNext(const RecommendationOutput& recommendation, const std::string& daemon_words,
               Terminal& terminal) {
  Framework framework = recommendation.workload.framework;
  const std::string tail = NumberOf(recommendation.study) + daemon_words;
  std::string format = "hf > training_args.json";
  if (framework == Framework::kFused) format = "env";
  if (UsesDeepspeed(framework)) format = "deepspeed > ds_config.json";
  terminal.Print("");
  terminal.PrintCommand("next:  hbmtune export " + tail + " --format " + format);
  terminal.PrintCommand("       hbmtune show " + tail + " --why");
  terminal.PrintCommand("       hbmtune estimate --from " + tail);
}

// What a study came to that was cancelled before anything was known.
void PrintNothingTried(const v1::Study& study, bool json) {
  const std::string why = "study " + NumberOf(study.name()) + " was cancelled before a trial ended";
  if (json) {
    StudyOutput cut = ToOutput(study);
    RecommendationOutput output;
    output.study = cut.study;
    output.state = cut.state;
    output.why = why;
    output.workload = cut.workload;
    output.device = cut.device;
    output.ceiling = cut.ceiling;
    PrintJson(ToJson(output));
  }
  Report(absl::AbortedError(why));
}

ExitCode CancelledCode() { return Interrupted() ? kInterrupted : kFailed; }

}  // namespace

Verdict VerdictOn(const RecommendationOutput& recommendation, const std::string& daemon_words) {
  if (recommendation.train_config) return {};
  const auto& shortfall = recommendation.shortfall;
  if (shortfall && shortfall->estimate.fits && recommendation.out_of_memory_trials == 0) {
    return {kFailed, "no trial ended within the budget; give more with --budget, and see hbmtune "
                     "show " + NumberOf(recommendation.study) + daemon_words};
  }
  return {kNothingFits, shortfall ? shortfall->message : recommendation.why};
}

absl::StatusOr<v1::Recommendation> RecommendFor(const Connection& connection,
                                                const std::string& study) {
  v1::RecommendRequest request;
  request.set_study(study);
  return Call(connection.tuning(), &v1::Tuning::StubInterface::Recommend, request);
}

absl::StatusOr<ExitCode> Conclude(const Connection& connection, const v1::Study& study,
                                  const std::string& daemon_words, bool json,
                                  Terminal& terminal) {
  if (study.state() == v1::STUDY_STATE_FAILED) {
    return absl::InternalError("study " + NumberOf(study.name()) + " failed: " + study.message());
  }
  absl::StatusOr<v1::Recommendation> answer = RecommendFor(connection, study.name());
  bool no_trial = absl::IsFailedPrecondition(answer.status());
  if (!answer.ok() && !(no_trial && study.state() == v1::STUDY_STATE_CANCELLED)) {
    return answer.status();
  }
  if (!answer.ok()) {
    PrintNothingTried(study, json);
    return CancelledCode();
  }
  RecommendationOutput recommendation = ToOutput(*answer);
  recommendation.state = StateName(study.state());
  const bool cancelled = study.state() == v1::STUDY_STATE_CANCELLED;
  const Verdict verdict = VerdictOn(recommendation, daemon_words);
  if (json) {
    PrintJson(ToJson(recommendation));
  } else if (cancelled || verdict.code != kFailed) {
    PrintRecommendation(terminal, recommendation);
    if (recommendation.train_config) PrintNext(recommendation, daemon_words, terminal);
  }
  if (cancelled) return CancelledCode();
  if (!verdict.sentence.empty()) Report(absl::InternalError(verdict.sentence));
  return verdict.code;
}

}  // namespace hbmtune::client

#include "tuner/search/designer.h"

#include "kernels/core/nearest.h"
#include "tuner/search/bracket.h"
#include "tuner/text.h"

namespace hbmtune::tuner {

std::vector<std::string> DesignerNames() { return {"bracket", "grid", "random"}; }

absl::StatusOr<std::unique_ptr<Designer>> MakeDesigner(std::string_view name, Space space,
                                                       Estimator estimator,
                                                       const DesignerOptions& options) {
  if (name == "bracket") return MakeBracket(std::move(space), std::move(estimator), options);
  if (name == "grid") return MakeGrid(std::move(space), std::move(estimator), options);
  if (name == "random") return MakeRandom(std::move(space), std::move(estimator), options);
  return Illegal("there is no designer '", name, "': use bracket, grid or random",
                 DidYouMean(name, DesignerNames()));
}

Deadline::Deadline(const DesignerOptions& options)
    : budget_seconds_(options.budget_seconds),
      search_seconds_(options.search_seconds),
      cancelled_(options.cancelled) {}

void Deadline::Note(const History& history) {
  trial_seconds_ = 0;
  for (const Trial& trial : history) trial_seconds_ += trial.seconds;
}

bool Deadline::Passed() const {
  if (cancelled_ && cancelled_()) return true;
  if (budget_seconds_ <= 0) return false;
  return trial_seconds_ + (search_seconds_ ? search_seconds_() : 0) >= budget_seconds_;
}

std::string MustStop(const History& history, const DesignerOptions& options) {
  constexpr int kFailuresInARow = 3;
  if (options.cancelled && options.cancelled()) return "the search was told to stop";
  double seconds = options.search_seconds ? options.search_seconds() : 0;
  int64_t trials = 0;
  int failures = 0;
  for (const Trial& trial : history) {
    seconds += trial.seconds;
    ++trials;
    failures = Failed(trial) ? failures + 1 : 0;
  }
  if (failures >= kFailuresInARow) {
    return Text("the last ", failures, " trials failed for other reasons than memory");
  }
  if (options.budget_trials > 0 && trials >= options.budget_trials) {
    return Text("the budget of ", options.budget_trials, " trials is spent");
  }
  if (options.budget_seconds > 0 && seconds >= options.budget_seconds) {
    return Text("the budget of ", options.budget_seconds, " s is spent");
  }
  return "";
}

}  // namespace hbmtune::tuner

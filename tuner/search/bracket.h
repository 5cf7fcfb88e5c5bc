#pragma once

#include <memory>

#include "tuner/search/designer.h"

namespace hbmtune::tuner {

// For each setting, fastest by estimate first, brackets the micro-batch that fits; then varies the
// refining axes around the best; then makes sure that the best stands at its true limit. An
// estimate orders settings and says where to start; only a trial decides. See README.md.
std::unique_ptr<Designer> MakeBracket(Space space, Estimator estimator,
                                      const DesignerOptions& options);
// Every config of the space in its order, but for what an out-of-memory trial rules out.
std::unique_ptr<Designer> MakeGrid(Space space, Estimator estimator,
                                   const DesignerOptions& options);
// Configs drawn evenly over the values of each axis, none twice.
std::unique_ptr<Designer> MakeRandom(Space space, Estimator estimator,
                                     const DesignerOptions& options);

// Whether a search has to end although it is not done: its time is up, or it was cancelled. Cheap:
// to be asked between estimates.
class Deadline {
 public:
  explicit Deadline(const DesignerOptions& options);
  // What the trials so far have taken of the budget.
  void Note(const History& history);
  bool Passed() const;

 private:
  double budget_seconds_;
  double trial_seconds_ = 0;
  std::function<double()> search_seconds_;
  std::function<bool()> cancelled_;
};

// Why the search must end now for the history's sake: it was cancelled, the budget is spent, or
// the device has failed three times in a row. Empty if it need not.
std::string MustStop(const History& history, const DesignerOptions& options);

}  // namespace hbmtune::tuner

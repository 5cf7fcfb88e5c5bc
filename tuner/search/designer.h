#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/search/history.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {

struct DesignerOptions {
  uint64_t seed = 0;
  double budget_seconds = 0;  // of the trials' wall time and the search's together; 0: no limit
  int64_t budget_trials = 0;  // 0: no limit
  bool modelled = false;      // trials are estimates: exact and cheap
  // Seconds that searches have taken up to now, this call of Next() included; empty: not counted.
  std::function<double()> search_seconds = {};
  // Once true, Next() returns without a config as soon as it can; empty: never.
  std::function<bool()> cancelled = {};
};

// What to do next: a config to try and why it, or no config and why the search is over.
struct Decision {
  std::optional<TrainConfig> config;
  std::string why;  // "micro-batch 24: between 16, which fits, and 32, which does not"
};

// Chooses trials. Next() is a function of the history alone (and of what the designer was made
// with), so a study resumes after a crash by showing a new designer the stored history. Trials
// still running are in the history too, unfinished; a designer may return a config beside them or,
// when it must know their result first, the decision `Wait()`. A search whose budget is spent
// before its first trial hands out the best that it has estimated. One thread at a time.
class Designer {
 public:
  virtual ~Designer() = default;
  virtual Decision Next(const History& history) = 0;

  // No config now, but the search is not over: ask again when a running trial has ended.
  static Decision Wait() { return {std::nullopt, std::string(kWaiting)}; }
  static bool IsWait(const Decision& d) { return !d.config && d.why == kWaiting; }

 private:
  static constexpr std::string_view kWaiting = "waiting for a running trial";
};

// "bracket" (the default), "grid" or "random". `estimator` may be empty: then nothing is pruned
// and the order is the space's. Fails for another name, and says which there are.
absl::StatusOr<std::unique_ptr<Designer>> MakeDesigner(std::string_view name, Space space,
                                                       Estimator estimator,
                                                       const DesignerOptions& options);
std::vector<std::string> DesignerNames();

}  // namespace hbmtune::tuner

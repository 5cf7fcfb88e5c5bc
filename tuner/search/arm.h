#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuner/search/history.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {

// Everything of a config but its micro-batch and what follows from that, as a key: what the trials
// of one arm share.
std::string SettingKey(const Space& space, const TrainConfig& config);

// Estimates by config, each asked for once. Estimates take milliseconds and are nearly all that a
// search spends, so this is where it is cut short: once `stop` is true nothing new is asked.
class EstimateCache {
 public:
  explicit EstimateCache(Estimator estimator, std::function<bool()> stop = {})
      : estimator_(std::move(estimator)), stop_(std::move(stop)) {}
  bool available() const { return static_cast<bool>(estimator_); }
  bool stopped() const { return stop_ && stop_(); }
  // Null where there is no estimator, it refused, or the search has stopped.
  const Estimate* Find(const TrainConfig& config);
  // Of all configs asked for that fit, the one ahead of the others; nothing if none fits.
  std::optional<TrainConfig> Best(Framework framework) const;

 private:
  struct Answer {
    TrainConfig config;
    std::optional<Estimate> estimate;
  };
  Estimator estimator_;
  std::function<bool()> stop_;
  std::map<std::string, Answer> answers_;
};

// One setting and what the estimate says of it. `guess` is the largest micro-batch estimated to
// fit, 0 if none is, and `tokens_per_second` the estimate there.
struct Arm {
  TrainConfig setting;
  std::string key;
  bool estimated = false;
  int64_t guess = 0;
  double tokens_per_second = 0;
  int64_t least_bytes = 0;  // estimated at the smallest micro-batch
};

// `memory_scale` is what trials so far say of the estimates: measured over estimated peak. `hint`
// is where the limit is looked for first, 0 if nothing is known.
Arm MakeArm(const Space& space, const TrainConfig& setting, EstimateCache& estimates,
            double memory_scale = 1, int64_t hint = 0);

// What the history knows of one arm's micro-batches.
struct Bracket {
  int64_t fits = 0;               // the largest that fitted, 0 if none was tried with success
  std::optional<int64_t> fails;   // the smallest known to be too large
  int64_t fastest = 0;            // the one with most tokens a second
  double tokens_per_second = 0;   // there
  double last_tokens_per_second = 0;  // at `fits`
  int trials = 0;
  bool failed = false;            // a trial ended neither well nor for want of memory
};

// `keys` holds SettingKey of each trial.
Bracket FindBracket(const Space& space, const Arm& arm, const History& history,
                    const std::vector<std::string>& keys);

// What must be known to fail before `fits` is called the limit: 1.25 times it, or the next legal
// micro-batch if that is further; 0 if there is none above.
int64_t LimitTarget(const std::vector<int64_t>& micro_batches, int64_t fits);

// The largest legal micro-batch <= value, or 0.
int64_t AtMost(const std::vector<int64_t>& micro_batches, int64_t value);
// The smallest legal micro-batch > value, or 0.
int64_t Above(const std::vector<int64_t>& micro_batches, int64_t value);

}  // namespace hbmtune::tuner

#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <optional>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune::tuner {

// One config tried. On a modelled device the estimate is the result and there is no measurement;
// elsewhere the measurement is, and the estimate (if any) was the expectation.
struct Trial {
  TrainConfig config;
  std::optional<Estimate> estimate;
  std::optional<Measurement> measurement;
  bool finished = true;  // false: handed out and still running
  double seconds = 0;    // wall time that it took, start of the process included
};

// Oldest first. Trials keep their order and are never removed.
using History = std::vector<Trial>;

// The cheap expectation of the modelled device, for any config of the space. Must be a pure
// function: designers keep its answers.
using Estimator = std::function<absl::StatusOr<Estimate>(const TrainConfig&)>;

// Ran to its end under the ceiling.
bool Fitted(const Trial& trial);
// Ended for want of memory: measured, or on a modelled device estimated not to fit.
bool RanOutOfMemory(const Trial& trial);
// Ended in any other way than these two or a cancellation: not to be tried again.
bool Failed(const Trial& trial);
// Of the measurement, else of the estimate; 0 if it did not fit.
double TokensPerSecond(const Trial& trial);
int64_t PeakUsedBytes(const Trial& trial);

// What a trial's figures rest on: of a measurement, MEASURED where the framework itself ran and
// REPLAYED where our kernels ran another's program. A probe that was gone before its first step
// (crashed, killed, timed out) measured nothing: then it is the estimate's, PREDICTED.
Evidence EvidenceOf(Framework framework, const std::optional<Estimate>& estimate,
                    const std::optional<Measurement>& measurement);

// Which of two trials that fitted is to be recommended: the faster; of equally fast ones that which
// changes less of what the framework does by itself, then the leaner.
bool Ahead(Framework framework, const Trial& a, const Trial& b);
// The trial ahead of all others, or null if none fitted.
const Trial* FindBest(Framework framework, const History& history);

// True if a config that ran out of memory shows that `other` must too: the same but for a micro-
// batch as large or larger, no recomputation instead of some, no offload instead of some.
// (ZeRO stages are not ordered: stage 3 has needed more than stage 2, DeepSpeed issue 4305.)
bool RulesOut(const TrainConfig& out_of_memory, const TrainConfig& other);

}  // namespace hbmtune::tuner

#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/visit.h"
#include "tuner/search/history.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {

// A config with what is known of it. `differs_in` is what sets it apart from the best: empty for
// the best itself.
struct Candidate {
  TrainConfig train_config;
  std::optional<Estimate> estimate;
  std::optional<Measurement> measurement;
  Evidence evidence = Evidence::kPredicted;
  double tokens_per_second = 0;
  double step_seconds = 0;
  int64_t peak_used_bytes = 0;
  std::string differs_in;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"train_config", "the choice of every tunable"}, self.train_config);
    v(Field{"estimate", "what the modelled device says"}, self.estimate);
    v(Field{"measurement", "what the probe returned"}, self.measurement);
    v(Field{"evidence", "what the figures rest on"}, self.evidence);
    v(Field{"tokens_per_second", "tokens trained a second, over all ranks"},
      self.tokens_per_second);
    v(Field{"step_seconds", "time of one optimizer step"}, self.step_seconds);
    v(Field{"peak_used_bytes", "most bytes taken of the device"}, self.peak_used_bytes);
    v(Field{"differs_in", "what sets it apart from the best"}, self.differs_in);
  }
};

// What keeps the best config from being faster: memory (its 1.25-fold micro-batch is known not to
// fit), batch (the global batch, or the largest micro-batch searched), compute, launch, link,
// collective, or budget (the search ended before it was known).
struct Recommendation {
  Candidate best;
  std::vector<Candidate> runners_up;  // at most five, fastest first
  std::string limited_by;             // one word
  std::string why;                    // one sentence on it
  int64_t trials = 0;
  int64_t out_of_memory_trials = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"best", "the train config to use"}, self.best);
    v(Field{"runners_up", "the next best"}, self.runners_up);
    v(Field{"limited_by", "memory, batch, compute, launch, link, collective or budget"},
      self.limited_by);
    v(Field{"why", "what limits the best config, in a sentence"}, self.why);
    v(Field{"trials", "trials finished"}, self.trials);
    v(Field{"out_of_memory_trials", "trials that ran out of memory"}, self.out_of_memory_trials);
  }
};

// The fastest config that fitted. Works at any point of a study. NotFound if no trial fitted yet:
// then see ExplainShortfall.
absl::StatusOr<Recommendation> Choose(const Space& space, const History& history);

// One change to the least config, or two together, and what it would do.
struct Hint {
  std::string change;           // "offload.optimizer=cpu_adam"
  int64_t saved_bytes = 0;      // of used memory
  double cost_ratio = 0;        // more step time per token and GPU, as a share; negative is faster
  bool fits = false;            // it would fit
  int64_t peak_used_bytes = 0;  // what it would need

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"change", "the tunable and its new value"}, self.change);
    v(Field{"saved_bytes", "device memory that it saves"}, self.saved_bytes);
    v(Field{"cost_ratio", "step time that it adds, as a share"}, self.cost_ratio);
    v(Field{"fits", "the config would fit"}, self.fits);
    v(Field{"peak_used_bytes", "device memory that it would need"}, self.peak_used_bytes);
  }
};

// Why nothing fits: the config that needs least, where its memory goes, what would help.
struct Shortfall {
  TrainConfig train_config;
  Estimate estimate;
  std::vector<Hint> hints;  // see ExplainShortfall; at most four
  std::string message;      // "nothing fits in 63.98 GiB: the least is N GiB (micro-batch 1, …)"

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"train_config", "the config that needs least memory"}, self.train_config);
    v(Field{"estimate", "what it needs"}, self.estimate);
    v(Field{"hints", "what would make it fit, smallest change first, or save most"}, self.hints);
    v(Field{"message", "the shortfall in a sentence"}, self.message);
  }
};

// What the modelled device says of any workload, since a hint may change that.
using WorkloadEstimator =
    std::function<absl::StatusOr<Estimate>(const Workload&, const TrainConfig&)>;

// A device with more memory than the study's.
struct LargerDevice {
  std::string name;  // "model:mi300x"
  WorkloadEstimator estimate;
};

// The config that needs least, without hints: settings at the smallest micro-batch, then those that
// refine the best of them, kMostLeastEstimates in all. Fails if no setting can be estimated.
inline constexpr int kMostLeastEstimates = 160;
absl::StatusOr<Shortfall> FindShortfall(const Space& space, const WorkloadEstimator& estimate);

// The same with hints, pins aside. Each changes one tunable (and what that demands of others), the
// framework, LoRA, the sequences, the ranks, or the device to one of `larger` (least memory first).
// Where no single one does, two at a time are tried: the four that save most, each with any other.
// Those that make it fit come first, by how much they change (Reach in changes.h), then by time;
// where none does, those that save most. At most kMostHintEstimates estimates beyond FindShortfall,
// and none once `stop` is true.
inline constexpr int kMostHintEstimates = 160;
absl::StatusOr<Shortfall> ExplainShortfall(const Space& space, const DeviceFacts& device,
                                           const WorkloadEstimator& estimate,
                                           const std::vector<LargerDevice>& larger = {},
                                           const std::function<bool()>& stop = {});

}  // namespace hbmtune::tuner

#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune::tuner {

// What the space must know of the device. Memory is no matter of legality: estimates drop what
// cannot fit.
struct DeviceFacts {
  bool host = false;  // real arithmetic on the CPU: fp32 is searched unless pinned
};

// Field path of TrainConfig ("zero.stage"), or "precision" (kernels/core/precision.h), to what it
// may be: one value, a list of values, or a range {"min": 1, "max": 16} of a whole number (either
// end may be absent). A pin may name a value that is not searched by itself (checkpoint.every 5),
// not one that the framework lacks.
using Pins = std::map<std::string, Json>;

// "zero.stage=2", "checkpoint.every=0,1,4", "micro_batch=1:16": the text of --pin and --range.
// Values are JSON or a bare word. Dashes in the path become underscores.
// Fails too where the field is pinned to something else already.
absl::Status ParsePin(const std::string& text, Pins& pins);

// One tunable and the values that it takes. `refines`: it moves speed or memory by little, and is
// tried only around a config that is good already (bucket sizes, allocator, …).
struct Axis {
  std::string path;
  std::vector<Json> values;
  bool refines = false;
};

// Micro-batches that are legal, ascending. With a global batch they are those that divide it by
// ranks; without, every whole number up to kLargestMicroBatch, and accumulation is 1.
inline constexpr int64_t kLargestMicroBatch = 1024;

// Most sequences that one rank takes in an optimizer step, far over any that is trained: it bounds
// micro_batch, grad_accum and with the ranks global_batch, so that no product overflows.
inline constexpr int64_t kMostSequencesPerRank = 1 << 20;

// Most settings that pins with lists may make. A search spends about 60 µs on each before its first
// estimate.
inline constexpr size_t kMostSettings = 10'000;

// The legal train configs of one workload. Legal by construction: an axis whose condition does not
// hold (buckets without ZeRO, loss scale without fp16, …) keeps its default. Immutable.
class Space {
 public:
  // Fails with one sentence for a senseless workload, an unknown path, a pin that the framework
  // lacks, or pins that leave nothing.
  static absl::StatusOr<Space> Create(const Workload& workload, const DeviceFacts& device,
                                      const Pins& pins = {});

  const Workload& workload() const { return workload_; }
  const std::vector<Axis>& axes() const { return axes_; }
  const std::vector<int64_t>& micro_batches() const { return micro_batches_; }

  // `setting` at this micro-batch, accumulation to match the global batch.
  TrainConfig WithMicroBatch(TrainConfig setting, int64_t micro_batch) const;

  // Every choice of the axes that do not refine, refining ones at their first value, at the
  // smallest micro-batch. What the search starts from: tens, not thousands.
  std::vector<TrainConfig> Settings() const;

  // `config` with one refining axis changed, for each such axis and value that applies to it.
  std::vector<TrainConfig> Refinements(const TrainConfig& config) const;

  // Every legal config: all axes, and micro-batches on the grid 1, 2, 3, 4, 6, 8, 12, 16, … where
  // no global batch limits them. Stops early when `visit` returns false.
  void ForEach(const std::function<bool(const TrainConfig&)>& visit) const;

  // A config drawn value by value along the axes, micro-batch from the grid of ForEach. Nothing if
  // the draw is not legal: draw again. The same generator state gives the same config anywhere.
  std::optional<TrainConfig> Sample(std::mt19937_64& random) const;

  // How many configs ForEach visits.
  int64_t Count() const;

  // True if ForEach would visit it, or would at a micro-batch between those of the grid.
  bool Contains(const TrainConfig& config) const;

 private:
  Space() = default;
  // Visits every legal choice of `axes` over `base`; refining ones only if `refine`.
  void Walk(const std::vector<Axis>& axes, bool refine, const TrainConfig& base,
            const std::function<bool(const TrainConfig&)>& visit) const;
  bool IsLegal(const TrainConfig& config) const;

  Workload workload_;
  Pins pins_;
  TrainConfig base_;  // what the framework does where nothing is searched
  std::vector<Axis> axes_;
  std::vector<int64_t> micro_batches_;
};

// OK if the workload makes sense by itself: sizes, positions, batch by ranks, optimizer, LoRA.
absl::Status ValidateWorkload(const Workload& workload);

// OK if the framework can do exactly this. Otherwise InvalidArgument, one sentence that names the
// field, its value and what to do. Includes ValidateWorkload.
absl::Status Validate(const Workload& workload, const TrainConfig& config);

// What the framework does where nothing is chosen: attention kernel, dtypes, loss scale. The
// config to lay flags over.
TrainConfig BaseConfig(Framework framework, const DeviceFacts& device);

// "N legal", by axis: for --explain-space.
struct SpaceSummary {
  int64_t legal = 0;     // Count()
  int64_t settings = 0;  // Settings().size()
  std::vector<Axis> axes;
};
SpaceSummary ExplainSpace(const Space& space);

}  // namespace hbmtune::tuner

#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {

// When a field of TrainConfig may differ from the framework's base: which frameworks have it, and
// what else must be chosen first. The one table that both Validate and Space read.
struct Tunable {
  std::string_view path;
  bool (*framework_has)(Framework);
  std::string_view who;  // "fused", "a +deepspeed framework": to complete "use …"
  bool (*applies)(const Workload&, const TrainConfig&);
  std::string_view needs;  // "zero.stage 1 or higher"
  // A detail says how a feature works, not whether it is on: a pin on it is void where the feature
  // is off, while a pin on anything else rules such configs out.
  bool detail;
};

std::span<const Tunable> Tunables();

// True if the framework has the field and its condition holds. Fields that are not in the table
// always apply.
bool Applies(std::string_view path, const Workload& workload, const TrainConfig& config);

// True if whether another field applies, or is legal, hangs on this one. Every other field's values
// are legal or not by themselves.
bool DecidesOthers(std::string_view path);

// What is searched unless pinned (README.md says why), in an order in which every axis comes after
// those that its condition reads.
std::vector<Axis> DefaultAxes(const Workload& workload, const DeviceFacts& device);

// OK if the numbers of offload, ZeRO and allocator are such as some workload could use: a pin on a
// field that is void here must make sense all the same.
absl::Status CheckLimits(const TrainConfig& config);

// OK if the values themselves are legal for the framework, conditions aside.
absl::Status CheckValues(const Workload& workload, const TrainConfig& config);

}  // namespace hbmtune::tuner

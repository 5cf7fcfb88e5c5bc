#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {

// How far a change goes from what was asked for, least first: another setting, DeepSpeed or SDPA
// around the same training, something that changes what is learned, more GPUs, another GPU.
enum class Reach : uint8_t { kSetting, kFramework, kTraining, kRanks, kDevice };

// One thing changed about a config, and what must change with it to stay legal. It may still be
// illegal for reasons of its own: Validate says.
struct Change {
  Reach reach = Reach::kSetting;
  std::string group;  // the tunable, by path; "precision"; or what of the workload
  std::string what;   // "offload.optimizer=cpu_adam"
  Workload workload;
  TrainConfig config;
  std::vector<std::string> with;  // paths that change along: {"zero.stage"}
};

// "offload.optimizer=cpu_adam with zero.stage=2".
std::string Words(const Change& change);

// `second`, made of what `first` led to, as one change.
Change Both(const Change& first, const Change& second);

// Every tunable of the framework to every value that is searched, and every switch turned, one at
// a time; the micro-batch is not among them.
std::vector<Change> TunableChanges(const Workload& workload, const DeviceFacts& device,
                                   const TrainConfig& config);

// The micro-batch halved, doubled and at 1, accumulation to match where that divides.
std::vector<Change> BatchChanges(const Workload& workload, const TrainConfig& config);

// What the user would have to change in the workload itself, of each kind the least first: LoRA,
// another framework, ZeRO over 2, 4 or 8 times the ranks (by DeepSpeed where the framework has no
// ZeRO), shorter sequences. Those that help most often come before the others.
std::vector<Change> WorkloadChanges(const Workload& workload, const DeviceFacts& device,
                                    const TrainConfig& config);

}  // namespace hbmtune::tuner

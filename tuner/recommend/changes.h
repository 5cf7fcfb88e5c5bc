#pragma once

#include <string>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {

// One thing changed about a config, and what must change with it to stay legal. It may still be
// illegal for reasons of its own: Validate says.
struct Change {
  std::string group;  // the tunable, by path; "precision"; or what of the workload
  std::string text;   // "offload.optimizer=cpu_adam with zero.stage=2"
  Workload workload;
  TrainConfig config;
};

// Every tunable of the framework to every value that is searched, and every switch turned, one at
// a time; the micro-batch is not among them.
std::vector<Change> TunableChanges(const Workload& workload, const DeviceFacts& device,
                                   const TrainConfig& config);

// The micro-batch halved, doubled and at 1, accumulation to match where that divides.
std::vector<Change> BatchChanges(const Workload& workload, const TrainConfig& config);

// What the user would have to change in the workload itself: ranks, LoRA, shorter sequences.
std::vector<Change> WorkloadChanges(const Workload& workload, const DeviceFacts& device,
                                    const TrainConfig& config);

}  // namespace hbmtune::tuner

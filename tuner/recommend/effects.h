#pragma once

#include <vector>

#include "kernels/core/effect.h"
#include "kernels/core/result.h"
#include "tuner/recommend/recommend.h"

namespace hbmtune::tuner {

// Every legal single change of `config`, whose estimate is `now`, that saves memory or time:
// most saved first, the cheaper of equals first. Of a tunable's changes that do the same one is
// kept. `estimate` may refuse: those changes are left out.
std::vector<Effect> Effects(const Workload& workload, const DeviceFacts& device,
                            const TrainConfig& config, const Estimate& now,
                            const WorkloadEstimator& estimate);

}  // namespace hbmtune::tuner

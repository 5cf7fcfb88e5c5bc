#pragma once

#include <functional>
#include <vector>

#include "tuner/recommend/recommend.h"

namespace hbmtune::tuner {

// The hints of a shortfall: see ExplainShortfall.
std::vector<Hint> FindHints(const Workload& workload, const DeviceFacts& device,
                            const Shortfall& shortfall, const WorkloadEstimator& estimate,
                            const std::vector<LargerDevice>& larger,
                            const std::function<bool()>& stop);

}  // namespace hbmtune::tuner

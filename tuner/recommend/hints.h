#pragma once

#include <functional>
#include <vector>

#include "tuner/recommend/recommend.h"

namespace hbmtune::tuner {

struct FoundHints {
  std::vector<Hint> hints;
  bool all_tried = true;  // false: `stop` or the bound on estimates cut it short
};

// The hints of a shortfall: see ExplainShortfall.
FoundHints FindHints(const Workload& workload, const DeviceFacts& device,
                     const Shortfall& shortfall, const WorkloadEstimator& estimate,
                     const std::vector<LargerDevice>& larger, const std::function<bool()>& stop);

}  // namespace hbmtune::tuner

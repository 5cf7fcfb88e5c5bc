#pragma once

#include <functional>
#include <vector>

#include "tuner/search/arm.h"

namespace hbmtune::tuner {

// Calls `score` for settings until none scores higher than the best found: all of them where they
// are few, else uphill from the first and from the last setting (the one that saves most), one
// tunable at a time. Estimates cost milliseconds and settings multiply into hundreds. `score` is
// asked once for each setting that is looked at.
void Explore(const std::vector<TrainConfig>& settings,
             const std::function<double(size_t index)>& score);

// The space's settings as arms, most promising first. Two estimates a setting say what its limit
// and its speed there ought to be (memory is linear in the micro-batch, time per token in its
// inverse); the leaders are then estimated at their limits. Arms whose speeds differ by less than
// `resolution_ratio` are taken for equally fast: the plainer comes first.
std::vector<Arm> Screen(const Space& space, EstimateCache& estimates, double memory_scale,
                        double resolution_ratio = 0);

}  // namespace hbmtune::tuner

#pragma once

#include <cstdint>
#include <optional>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune::lowering {

// After how many layers the Program of this config begins to repeat itself (1, or the intervals of
// checkpointing); nothing where it counts elements or layers, so that more layers mean another
// structure: gradient buckets, optimizer state streamed in pieces, activations offloaded by a plan.
std::optional<int64_t> LayerPeriod(const Workload& workload, const TrainConfig& config);

}  // namespace hbmtune::lowering

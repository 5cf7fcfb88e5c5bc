#pragma once

#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/program/program.h"

namespace hbmtune::lowering {

// Parts of the model whose saved activations move as one: layers, or checkpointed segments.
int64_t OffloadUnits(const Workload& workload, const TrainConfig& config);

// Which units go away: none; with `checkpoints` all; with `layers` those in the middle (keep_ratio
// of them, to the nearest but at least one, stay at each end; at the end as many as are in flight
// anyway) at whose end the dry run's pressure is over pressure_ratio. The pressure is
// bytes ÷ device_bytes; without device_bytes every middle unit goes.
std::vector<bool> PlanOffload(const Workload& workload, const TrainConfig& config,
                              const std::vector<int64_t>& allocated_at_end,
                              int64_t device_bytes);

// Bytes allocated in device memory before each of the positions (ascending).
std::vector<int64_t> AllocatedAt(const Program& program, const std::vector<size_t>& positions);

}  // namespace hbmtune::lowering

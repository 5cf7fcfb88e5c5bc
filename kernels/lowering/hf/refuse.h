#pragma once

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune::lowering {

// Throws std::invalid_argument that names the first thing which the lowering of Transformers'
// programs does not know; nothing is ever estimated as something else.
void RefuseHf(const Workload& workload, const TrainConfig& config);

}  // namespace hbmtune::lowering

#pragma once

#include <vector>

#include "kernels/lowering/fused/context.h"

namespace hbmtune::lowering {

// Causal attention over what the projections gave: query, key and value [rows, heads · head_dim],
// or all three in one tensor as the architecture lays them out. Rotary positions, where the model
// has them, are applied in place. Returns [rows, heads · head_dim].
Tensor Attention(Context& context, std::vector<Tensor> projections);

}  // namespace hbmtune::lowering

#pragma once

#include "kernels/lowering/fused/linear.h"

namespace hbmtune::lowering {

// down(silu(gate) · up): the inner product is made again in the backward pass, not saved.
Tensor SiluDown(Context& context, Tensor gate, Tensor up, const LinearLayer& down);
// down(gelu(inner)), the same way.
Tensor GeluDown(Context& context, Tensor inner, const LinearLayer& down, bool tanh_form);
// A linear layer alone that ends a branch: in a recomputation its product is skipped.
Tensor BranchEnd(Context& context, Tensor x, const LinearLayer& layer);

}  // namespace hbmtune::lowering

#pragma once

#include <functional>
#include <vector>

#include "kernels/lowering/fused/context.h"

namespace hbmtune::lowering {

// A part of the model from one residual stream to the next.
using Segment = std::function<Tensor(Context&, const Tensor& x)>;

// segment(x), of which only x is kept; the backward pass runs the segment again to make what it
// needs, but for its last product. `parameters`: the weights that the segment trains.
Tensor Checkpoint(Context& context, const Tensor& x, Segment segment,
                  const std::vector<Tensor>& parameters);

}  // namespace hbmtune::lowering

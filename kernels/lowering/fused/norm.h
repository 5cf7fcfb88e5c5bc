#pragma once

#include <string>
#include <vector>

#include "kernels/lowering/fused/context.h"

namespace hbmtune::lowering {

struct NormLayer {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  // null: RMSNorm, else LayerNorm
};

NormLayer FindNorm(Context& context, const std::string& prefix);

// A norm's output, and how to make it again: who reads it need not keep it. Nothing to make it
// with where no graph is recorded.
struct Normed {
  Tensor value;
  Remake remake;
};

struct Branches {
  Tensor residual;
  std::vector<Normed> normed;  // one of each layer
};

// The norms of x, in `dtype`, and x itself as the residual, as one node: its backward pass adds
// the norms' input gradients to the residual's in place.
Branches NormWithResidual(Context& context, const Tensor& x, const std::vector<NormLayer>& layers,
                          Dtype dtype);
// One norm without a residual.
Tensor Norm(Context& context, const Tensor& x, const NormLayer& layer, Dtype dtype);

// residual + Σ branches, written over the first branch, which nobody else may need. Dropout on
// each branch first, if the model has it.
Tensor AddResidual(Context& context, const Tensor& residual, std::vector<Tensor> branches);
// x dropped out with the model's probability, in place.
Tensor Dropout(Context& context, Tensor x, int64_t site);

}  // namespace hbmtune::lowering

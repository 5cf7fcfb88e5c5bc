#pragma once

#include "kernels/lowering/fused/linear.h"

namespace hbmtune::lowering {

// What a micro-batch is predicted against.
struct Targets {
  Tensor targets;  // [batch, tokens] int64
  Tensor count;    // [1] fp32: those that are not ignored
};

// Where the documents of packed rows begin; empty where a row is one sequence.
Tensor DocumentStarts(Context& context, const Tensor& labels);
Targets MakeTargets(Context& context, const Tensor& labels);

// loss (=, or += after the first micro-batch) mean cross-entropy of head(x) / accumulation. The
// logits exist for `loss_chunk_tokens` rows at a time, and become their own gradient at once; what
// the node keeps is the gradient of x alone. Returns the root of the backward pass.
Tensor HeadLoss(Context& context, Tensor x, const LinearLayer& head, Targets targets,
                const Tensor& loss, bool first_micro_batch);

}  // namespace hbmtune::lowering

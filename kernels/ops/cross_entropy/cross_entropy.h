#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct CrossEntropyAttrs {
  int64_t ignore_index = -100;
  double grad_scale = 1;  // dlogits are of mean loss · grad_scale [· loss_scale]: 1/accumulation
};

// losses[n] = logsumexp(logits[n]) − logits[n, target], 0 where ignored, and in the same pass
// dlogits = (softmax − onehot) · grad_scale · loss_scale / count, 0 where ignored. `count` is of
// the whole micro-batch, so that logits may come by chunks of tokens with the same result.
// dlogits may be logits. Dense. Throws std::invalid_argument for a target outside the vocabulary.
//   in   logits [N, V], targets [N] int64, count [1] fp32, loss_scale [1] fp32 (optional)
//   out  losses [N] fp32 (fp64 with fp64), dlogits [N, V] (optional: without it, evaluation)
// attrs: CrossEntropyAttrs. Leading dimensions fold: logits [B, S, V] with targets [B, S] is fine.
extern const OpKind kCrossEntropy;

struct CrossEntropyMeanAttrs {
  double factor = 1;       // 1/accumulation
  int64_t accumulate = 0;  // loss += instead of =
};

// loss = factor · Σ losses / count; 0 if count is 0.
//   in   losses [N…], count [1] fp32
//   out  loss [1] fp32 (fp64 with fp64)
// attrs: CrossEntropyMeanAttrs.
extern const OpKind kCrossEntropyMean;

}  // namespace hbmtune::ops

#pragma once

#include "kernels/ops/support/attention.h"
#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// o = dropout(softmax(scale · q·kᵀ)) · v, with the probabilities (before dropout) saved, as eager
// frameworks do. Their dtype is their own: fp32 keeps the softmax's result in fp32. The softmax
// itself is computed in fp32 (fp64 with fp64).
//   in   q [B, S, H, D], k [B, S, Hkv, D], v [B, S, Hkv, D], key [2] int64 (with dropout only),
//        starts [B, S] int64 (with documents only)
//   out  o [B, S, H, D], probabilities [B, H, S, S]
// attrs: AttentionAttrs.
extern const OpKind kAttentionMaterialised;

// Gradients overwrite; dq, dk, dv may be views of one buffer.
//   in   do [B, S, H, D], q, k, v, probabilities, key (with dropout only),
//        starts (with documents only)
//   out  dq [as q], dk [as k], dv [as v], dscores [as probabilities] workspace:
//        the gradient of q·kᵀ
// attrs: AttentionAttrs.
extern const OpKind kAttentionMaterialisedBackward;

}  // namespace hbmtune::ops

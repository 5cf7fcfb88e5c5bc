#pragma once

#include "kernels/ops/support/attention.h"
#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// The same function as attention_materialised, by tiles with an online softmax: nothing of size
// S² exists; the log-sum-exp of each row is saved and probabilities are computed again in the
// backward pass.
//   in   q [B, S, H, D], k [B, S, Hkv, D], v [B, S, Hkv, D], key [2] int64 (with dropout only),
//        starts [B, S] int64 (with documents only)
//   out  o [B, S, H, D], lse [B, H, S] fp32 (fp64 with fp64)
// attrs: AttentionAttrs.
extern const OpKind kAttentionTiled;

// Gradients overwrite; dq, dk, dv may be views of one buffer. delta is Σ o·do of each row.
//   in   do [B, S, H, D], q, k, v, o, lse, key (with dropout only), starts (with documents only)
//   out  dq [as q], dk [as k], dv [as v], delta [B, H, S] fp32 workspace (fp64 with fp64)
// attrs: AttentionAttrs.
extern const OpKind kAttentionTiledBackward;

}  // namespace hbmtune::ops

#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// Learned positions (GPT-2): y[b, s] = x[b, s] + weight[s]. Dense; y may be x.
//   in   x [B, S, H], weight [P, H] with P ≥ S
//   out  y [B, S, H]
// attrs: none.
extern const OpKind kPositions;

struct PositionsBackwardAttrs {
  int64_t accumulate = 0;  // dweight += instead of =
};

// dweight[s] = Σ over b of dy[b, s]; rows from S on are 0 (or kept when accumulating).
//   in   dy [B, S, H]
//   out  dweight [P, H]
// attrs: PositionsBackwardAttrs.
extern const OpKind kPositionsBackward;

}  // namespace hbmtune::ops

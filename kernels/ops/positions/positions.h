#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// Learned positions (GPT-2): y[b, s] = x[b, s] + weight[s], or with documents
// weight[s − starts[b, s]]. Dense; y may be x.
//   in   x [B, S, H], weight [P, H] with P ≥ S, starts [B, S] int64 (optional)
//   out  y [B, S, H]
// attrs: none.
extern const OpKind kPositions;

struct PositionsBackwardAttrs {
  int64_t accumulate = 0;  // dweight += instead of =
};

// dweight[p] = Σ of dy[b, s] over the tokens at position p, b first and s ascending; rows that
// nobody has are 0 (or kept when accumulating).
//   in   dy [B, S, H], starts [B, S] int64 (optional)
//   out  dweight [P, H]
// attrs: PositionsBackwardAttrs.
extern const OpKind kPositionsBackward;

}  // namespace hbmtune::ops

#pragma once

#include "kernels/ops/support/norm.h"
#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// y = x · rstd · weight with rstd = 1/√(mean(x²) + eps), row by row over the last dimension.
// Dense; every tensor of any floating dtype of its own; y may be x if the backward pass is not
// needed.
//   in   x [N…, D], weight [D]
//   out  y [N…, D], rstd [N] fp32 (fp64 with fp64)
// attrs: NormAttrs.
extern const OpKind kRmsNorm;

// dx may be dy. Without the last two outputs only dx is computed (frozen weight).
//   in   dy [N…, D], x [N…, D], weight [D], rstd [N]
//   out  dx [N…, D], dweight [D] (optional), partials [NormPartials(N), D] fp32 workspace
//        (with dweight; fp64 with fp64)
// attrs: NormBackwardAttrs.
extern const OpKind kRmsNormBackward;

}  // namespace hbmtune::ops

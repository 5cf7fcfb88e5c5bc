#pragma once

#include "kernels/ops/support/norm.h"
#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// y = (x − mean) · rstd · weight + bias with rstd = 1/√(var + eps), biased variance, row by row
// over the last dimension. Dense; every tensor of any floating dtype of its own.
//   in   x [N…, D], weight [D], bias [D]
//   out  y [N…, D], mean [N], rstd [N], both fp32 (fp64 with fp64)
// attrs: NormAttrs.
extern const OpKind kLayerNorm;

// dx may be dy. Without the last three outputs only dx is computed (frozen parameters).
//   in   dy [N…, D], x [N…, D], weight [D], mean [N], rstd [N]
//   out  dx [N…, D], dweight [D], dbias [D] (both or none),
//        partials [2 · NormPartials(N), D] fp32 workspace (with dweight; fp64 with fp64)
// attrs: NormBackwardAttrs.
extern const OpKind kLayerNormBackward;

}  // namespace hbmtune::ops

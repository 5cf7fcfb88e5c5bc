#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// Elements of a gradient that one partial sum covers.
inline constexpr int64_t kSquaresBlock = 65536;
constexpr int64_t SquaresPartials(int64_t elements) {
  return (elements + kSquaresBlock - 1) / kSquaresBlock;
}

// partials[i] = Σ x² over block i of kSquaresBlock elements. `partials` is this tensor's slice of
// one buffer for all gradients; ranks add theirs by a collective on that buffer.
//   in   x [any], dense
//   out  partials [SquaresPartials(elements)] fp32 (fp64 with fp64)
// attrs: none.
extern const OpKind kGradNormSquares;

// What the optimizers read on the device, so that clipping, unscaling and the skipping of an
// overflowed step need no branch in the Program. Indices in `control`.
inline constexpr int64_t kControlNorm = 0;         // norm of the unscaled gradients
inline constexpr int64_t kControlCoefficient = 1;  // what gradients are multiplied by
inline constexpr int64_t kControlFoundInf = 2;     // 1: a gradient is not finite, skip the step
inline constexpr int64_t kControlSize = 3;

struct GradNormAttrs {
  double max_norm = 0;  // 0: no clipping
};

// norm = √Σ partials / loss_scale; coefficient = min(1, max_norm / (norm + 1e-6)) / loss_scale
// (torch.nn.utils.clip_grad_norm_); found_inf = norm is not finite.
//   in   partials [P], loss_scale [1] fp32 (optional)
//   out  control [3] fp32 (fp64 with fp64)
// attrs: GradNormAttrs.
extern const OpKind kGradNorm;

}  // namespace hbmtune::ops

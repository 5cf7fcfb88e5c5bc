#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// flag = 1 if x holds an infinity or a NaN, else unchanged: zero it first; several tensors may
// share one flag.
//   in   x [any], dense
//   out  flag [1] fp32 (in place)
// attrs: none.
extern const OpKind kFinite;

// y = x / loss_scale, and the flag as above on x before the division (torch's
// _amp_foreach_non_finite_check_and_unscale_).
//   in   x [any], dense, loss_scale [1] fp32
//   out  y [as x], normally x itself, flag [1] fp32 (in place)
// attrs: none.
extern const OpKind kFiniteUnscale;

}  // namespace hbmtune::ops

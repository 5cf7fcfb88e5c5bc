#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// y = a + b, in fp32 (fp64 where any of them is fp64), each of any floating dtype; dense; y may be
// a or b.
//   in   a [any], b [as a]
//   out  y [as a]
// attrs: none.
extern const OpKind kAdd;

// a += b: the same with y == a, which the tape uses for gradients that meet.
//   in   a [any], b [as a]
//   out  a
// attrs: none.
extern const OpKind kAddInPlace;

}  // namespace hbmtune::ops

#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// y = x, converted to y's dtype; x and y have the same shape and any strides, so that a cast, a
// transpose, a gather into a bucket and a broadcast are all this op. fp32 → 16 bit rounds to
// nearest even. x and y do not overlap unless they are the same tensor.
//   in   x [any]
//   out  y [as x]
// attrs: none.
extern const OpKind kCopy;

}  // namespace hbmtune::ops

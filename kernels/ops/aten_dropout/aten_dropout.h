#pragma once

#include <cstdint>

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct AtenDropoutAttrs {
  double probability = 0;  // of dropping
  int64_t seed = 0;        // of this call; a recomputation passes the same
};

// PyTorch's native_dropout: y = x · mask / (1 − p). Which elements stay is a function of seed and
// position alone. Any strides for x, mask and y of one shape.
//   in   x [any]
//   out  y [as x], mask [as x] uint8
// attrs: AtenDropoutAttrs.
extern const OpKind kAtenDropout;

// dx = dy · mask / (1 − p).
//   in   dy [any], mask [as dy] uint8
//   out  dx [as dy]
// attrs: AtenDropoutAttrs.
extern const OpKind kAtenDropoutBackward;

}  // namespace hbmtune::ops

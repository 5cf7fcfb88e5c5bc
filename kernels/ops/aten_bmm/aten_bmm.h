#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct AtenBmmAttrs {
  double alpha = 1;
};

// PyTorch's products: y = alpha · a·b [+ bias], for every batch. Any strides, so transposes are
// views; sums in fp64.
//   in   a [B, M, K] or [M, K], b [B, K, N] or [K, N], bias (optional, broadcast to y)
//   out  y [B, M, N] or [M, N]
// attrs: AtenBmmAttrs.
extern const OpKind kAtenBmm;

}  // namespace hbmtune::ops

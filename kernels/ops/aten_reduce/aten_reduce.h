#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct AtenSumAttrs {
  double factor = 1;  // 1/n for a mean
};

// PyTorch's sums: y = factor · Σ x over the dimensions that y has with extent 1, or has not at all
// (leading ones). Any strides and dtypes; summed in fp64 in row-major order.
//   in   x [any]
//   out  y [as x, some extents 1]
// attrs: AtenSumAttrs.
extern const OpKind kAtenSum;

// y = √Σ x², over the same dimensions (a norm of order 2).
//   in   x [any]
//   out  y [as x, some extents 1]
// attrs: none.
extern const OpKind kAtenNorm;

}  // namespace hbmtune::ops

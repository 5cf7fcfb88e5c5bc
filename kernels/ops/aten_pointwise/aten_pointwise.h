#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct AtenPointwiseAttrs {
  double scalar = 0;  // what the op says
};

// PyTorch's elementwise kernels. Inputs broadcast to the output's shape, any strides, any dtypes;
// arithmetic in fp64, rounded once to the output's dtype. The output may be an input of its shape.
//   in   a [any], b [as a, broadcast] (binary ops only)
//   out  y [any]
// attrs: AtenPointwiseAttrs.
extern const OpKind kAtenAdd;            // a + b
extern const OpKind kAtenMul;            // a · b
extern const OpKind kAtenAddScalar;      // a + scalar
extern const OpKind kAtenMulScalar;      // a · scalar
extern const OpKind kAtenNeg;            // −a
extern const OpKind kAtenPow;            // a ^ scalar
extern const OpKind kAtenRsqrt;          // 1 / √a
extern const OpKind kAtenReciprocal;     // 1 / a
extern const OpKind kAtenCos;            // cos a
extern const OpKind kAtenSin;            // sin a
extern const OpKind kAtenTanh;           // tanh a
extern const OpKind kAtenTanhBackward;   // a · (1 − b²), b = tanh's result
extern const OpKind kAtenSilu;           // a / (1 + e^−a)
extern const OpKind kAtenSiluBackward;   // a · silu'(b)
extern const OpKind kAtenGelu;           // a · Φ(a)
extern const OpKind kAtenGeluBackward;   // a · gelu'(b)
extern const OpKind kAtenClampMax;       // min(a, scalar)

}  // namespace hbmtune::ops

#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// Rows of x, y, dx, dy may be further apart than they are long (a view of some columns of a wider
// buffer): the last stride is 1 and leading dimensions fold into N rows of one common stride.
// Weights are dense. Inputs have one dtype, or fp32 and 16-bit mixed (products then in fp32);
// the output has any floating dtype; sums in fp32 (fp64 where the inputs are).
struct LinearAttrs {
  double alpha = 1;        // y = alpha · x·Wᵀ (+ bias)
  int64_t accumulate = 0;  // the output += instead of =
  int64_t weight_in_out = 0;  // weight is [K, M] (GPT-2's Conv1D) instead of [M, K]
};

// y = alpha · x·Wᵀ + bias.
//   in   x [N…, K], weight [M, K] or [K, M], bias [M] (optional)
//   out  y [N…, M]
// attrs: LinearAttrs.
extern const OpKind kLinear;

// dx = alpha · dy·W.
//   in   dy [N…, M], weight [M, K] or [K, M]
//   out  dx [N…, K]
// attrs: LinearAttrs.
extern const OpKind kLinearBackwardInput;

// dweight = alpha · dyᵀ·x (or its transpose).
//   in   dy [N…, M], x [N…, K]
//   out  dweight [M, K] or [K, M]
// attrs: LinearAttrs.
extern const OpKind kLinearBackwardWeight;

struct LinearBackwardBiasAttrs {
  int64_t accumulate = 0;
};

// dbias = Σ of dy's rows, in fp32.
//   in   dy [N…, M]
//   out  dbias [M]
// attrs: LinearBackwardBiasAttrs.
extern const OpKind kLinearBackwardBias;

}  // namespace hbmtune::ops

#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct GeluAttrs {
  int64_t tanh_form = 0;  // GPT-2's approximation instead of the erf form
};

// y = x · Φ(x). Dense; y may be x.
//   in   x [any]
//   out  y [as x]
// attrs: GeluAttrs.
extern const OpKind kGelu;

// dx may be dy or x.
//   in   dy [any], x [as dy]
//   out  dx [as dy]
// attrs: GeluAttrs.
extern const OpKind kGeluBackward;

}  // namespace hbmtune::ops

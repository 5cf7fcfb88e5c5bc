#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// PyTorch's softmax and log-softmax over the last dimension. Dense, any floating dtypes.
//   in   x [N…, D]
//   out  y [as x]
// attrs: none.
extern const OpKind kAtenSoftmax;
extern const OpKind kAtenLogSoftmax;

// dx from dy and the saved result y.
//   in   dy [N…, D], y [as dy]
//   out  dx [as dy]
// attrs: none.
extern const OpKind kAtenSoftmaxBackward;
extern const OpKind kAtenLogSoftmaxBackward;

}  // namespace hbmtune::ops

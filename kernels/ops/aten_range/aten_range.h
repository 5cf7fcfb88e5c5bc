#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct AtenRangeAttrs {
  double theta = 10000;  // of the inverse frequencies
};

// Tensors that are a function of the index alone. Dense, any dtype.
//   in   none
//   out  y [N…]
// attrs: AtenRangeAttrs.
extern const OpKind kAtenArange;              // y[i] = i
extern const OpKind kAtenInverseFrequencies;  // y[i] = theta^(−i/N), N frequencies
extern const OpKind kAtenCausalMask;          // y[…, i, j] = j ≤ i ? 0 : −1e30 (lowest of 16 bit)

}  // namespace hbmtune::ops

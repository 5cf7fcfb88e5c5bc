#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// y = silu(gate) · up, with silu(x) = x / (1 + e^−x). Rows may be further apart than they are
// long (gate and up as halves of one buffer); y may be gate or up.
//   in   gate [N…, F], up [N…, F]
//   out  y [N…, F]
// attrs: none.
extern const OpKind kSiluGate;

// dgate may be dy or gate, dup may be dy or up. With a third output the forward result is made
// again on the way (what the backward pass of the next linear reads when it was not saved); it may
// be dy, if dgate is not.
//   in   dy [N…, F], gate [N…, F], up [N…, F]
//   out  dgate [N…, F], dup [N…, F], y [N…, F] (optional)
// attrs: none.
extern const OpKind kSiluGateBackward;

}  // namespace hbmtune::ops

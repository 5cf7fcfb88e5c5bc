#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct LossScaleAttrs {
  int64_t window = 2000;    // steps without overflow before the scale doubles
  int64_t hysteresis = 1;   // overflows before the scale halves
  double min = 1;           // least scale
};

// The update after a step. Overflow: good_steps = 0; hysteresis_left −= 1, and at 0 the scale is
// halved, not under min, at each further overflow too. Else good_steps += 1, and after `window`
// of them the scale doubles (if it stays finite), good_steps = 0 and hysteresis_left is restored.
// (GradScaler, with DeepSpeed's hysteresis and floor.)
//   in   control [3] fp32 of grad_norm
//   out  scale [1] fp32, trackers [2] int64: good_steps, hysteresis_left; both in place
// attrs: LossScaleAttrs.
extern const OpKind kLossScale;

}  // namespace hbmtune::ops

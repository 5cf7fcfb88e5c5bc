#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// step += 1 unless control says that the step is skipped. Runs once, before the optimizer's ops.
//   in   control [3] fp32 of grad_norm (optional)
//   out  step [1] int64 (in place)
// attrs: none.
extern const OpKind kOptimizerStep;

}  // namespace hbmtune::ops

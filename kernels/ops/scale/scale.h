#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct ScaleAttrs {
  double factor = 1;
};

// y = x · factor [· s]; any floating dtypes; dense; y may be x.
//   in   x [any], s [1] fp32 on the device (optional)
//   out  y [as x]
// attrs: ScaleAttrs.
extern const OpKind kScale;

}  // namespace hbmtune::ops

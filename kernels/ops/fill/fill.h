#pragma once

#include "kernels/program/op_kind.h"
#include "kernels/program/tape.h"  // FillAttrs

namespace hbmtune::ops {

// y = value, of any dtype and any strides.
//   in   none
//   out  y [any]
// attrs: FillAttrs.
extern const OpKind kFill;

}  // namespace hbmtune::ops

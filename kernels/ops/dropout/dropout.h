#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct DropoutAttrs {
  double probability = 0;  // of dropping; in [0, 1)
  int64_t site = 0;        // which dropout of its layer this is: equal keys, other numbers
};

// y = x · keep / (1 − p), element i kept by Philox 4x32-10 at counter (i/4, site, draw) under the
// key's seed. The backward pass is this op over dy with the same key and site. Dense; y may be x.
//   in   x [any], key [2] int64 from random_key
//   out  y [as x]
// attrs: DropoutAttrs.
extern const OpKind kDropout;

}  // namespace hbmtune::ops

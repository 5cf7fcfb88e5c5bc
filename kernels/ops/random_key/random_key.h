#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// Hands out the key of the next dropout, or of all dropouts of a layer, and steps the generator:
// key = state; state.draw += 1. Dropout is a function of (key, site, element), so a
// recomputation that is given the saved key replays it exactly; a Program need not know the step.
//   in   state [2] int64: seed, draw
//   out  key [2] int64, state (in place)
// attrs: none.
extern const OpKind kRandomKey;

}  // namespace hbmtune::ops

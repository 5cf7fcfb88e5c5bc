#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct RotaryTableAttrs {
  double theta = 10000;
  int64_t position_offset = 0;
};

// cos and sin of (s + offset) · theta^(−2i/D), i < D/2; angles in fp64, stored as fp32 (or fp64).
// Made once, in the setup.
//   in   none
//   out  cos [P, D/2], sin [P, D/2]
// attrs: RotaryTableAttrs.
extern const OpKind kRotaryTable;

struct RotaryAttrs {
  int64_t inverse = 0;  // rotates back: the backward pass
};

// Rotary positions in the layout of Hugging Face (halves, not pairs): with x = (x₁, x₂),
// y = (x₁·cos − x₂·sin, x₂·cos + x₁·sin). Only the last stride must be 1; y may be x. Position is
// the index s, or with documents s − starts[s].
//   in   x [B, S, H, D], cos [P, D/2], sin [P, D/2] with P ≥ S, starts [B, S] int64 (optional)
//   out  y [B, S, H, D]
// attrs: RotaryAttrs.
extern const OpKind kRotary;

}  // namespace hbmtune::ops

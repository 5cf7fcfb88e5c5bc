#pragma once

#include "kernels/ops/adamw/adamw.h"
#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// Elements that share one scale.
inline constexpr int64_t kAdamw8bitBlock = 256;
constexpr int64_t Adamw8bitBlocks(int64_t elements) {
  return (elements + kAdamw8bitBlock - 1) / kAdamw8bitBlock;
}

// AdamW with moments of one byte: the dynamic (tree) code of "8-bit Optimizers via Block-wise
// Quantization" (Dettmers et al. 2022), signed for the first moment and unsigned for the second,
// with one fp32 scale (largest magnitude) per block of 256. The state
// starts as zeros: any code times a scale of 0 is 0.
//   in   grad [any], step [1] int64, control [3] of grad_norm (optional)
//   out  param, exp_avg [n] uint8, exp_avg_sq [n] uint8, exp_avg_scale [Adamw8bitBlocks(n)] fp32,
//        exp_avg_sq_scale [as exp_avg_scale] fp32, master (optional); all in place
// attrs: AdamwAttrs.
extern const OpKind kAdamw8bit;

}  // namespace hbmtune::ops

#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct AdamwAttrs {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  // decoupled: param ·= 1 − lr · weight_decay
};

// One AdamW step in place (torch.optim.AdamW). g = grad · control.coefficient; nothing changes if
// control.found_inf. With a master the arithmetic is on the master, and param is its rounding.
// Tensors of any floating dtype (moments too), dense, of one element count; arithmetic in fp32
// (fp64 where param is).
//   in   grad [any], step [1] int64 (of optimizer_step: 1 in the first step),
//        control [3] of grad_norm (optional)
//   out  param, exp_avg, exp_avg_sq, master (optional); all in place
// attrs: AdamwAttrs.
extern const OpKind kAdamw;

}  // namespace hbmtune::ops

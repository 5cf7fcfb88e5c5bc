#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct SgdAttrs {
  double lr = 1e-2;
  double momentum = 0;
  double weight_decay = 0;  // coupled: added to the gradient
};

// One SGD step in place (torch.optim.SGD without dampening): g = grad · control.coefficient +
// weight_decay · param; m = momentum · m + g; param −= lr · m. Nothing changes if
// control.found_inf. The momentum buffer starts at 0 and is left out when momentum is 0.
//   in   grad [any], control [3] of grad_norm (optional)
//   out  param, momentum (if attrs.momentum > 0), master (optional); all in place
// attrs: SgdAttrs.
extern const OpKind kSgd;

}  // namespace hbmtune::ops

#pragma once

#include <cstdint>

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct AtenNllLossAttrs {
  int64_t ignore_index = -100;
};

// Mean negative log-likelihood over targets that are not ignored (torch's nll_loss).
//   in   log_probabilities [N, V], targets [N] int64
//   out  loss [] or [1], total_weight [] or [1]: the number of those targets
// attrs: AtenNllLossAttrs.
extern const OpKind kAtenNllLoss;

//   in   dy [] or [1], targets [N] int64, total_weight [] or [1]
//   out  dlog_probabilities [N, V]
// attrs: AtenNllLossAttrs.
extern const OpKind kAtenNllLossBackward;

}  // namespace hbmtune::ops

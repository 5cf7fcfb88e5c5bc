#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct LabelsAttrs {
  int64_t ignore_index = -100;
};

// What a causal model predicts: targets[b, s] = labels[b, s + 1], ignored at the last position;
// count is the number of targets that are not ignored.
//   in   labels [B, S] int64
//   out  targets [B, S] int64 (not labels itself), count [1] fp32
// attrs: LabelsAttrs.
extern const OpKind kLabels;

}  // namespace hbmtune::ops

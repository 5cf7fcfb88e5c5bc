#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

struct DocumentStartsAttrs {
  int64_t ignore_index = -100;
};

// Where the document of each token begins, in packed rows: starts[b, s] is the last t ≤ s with
// t = 0 or labels[b, t] ignored. Nothing before the first token of a document may predict it, so
// that its label is ignored; padding behind the last document falls apart into documents of one
// token. Ascends along a row.
//   in   labels [B, S] int64
//   out  starts [B, S] int64
// attrs: DocumentStartsAttrs.
extern const OpKind kDocumentStarts;

}  // namespace hbmtune::ops

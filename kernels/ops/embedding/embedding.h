#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// y[n] = weight[ids[n]], converted to y's dtype. Dense. Throws std::invalid_argument for an id
// outside the vocabulary.
//   in   ids [N…] int64, weight [V, H]
//   out  y [N…, H]
// attrs: none.
extern const OpKind kEmbedding;

struct EmbeddingBackwardAttrs {
  int64_t accumulate = 0;  // dweight += instead of =
};

// dweight[v] = Σ dy[n] over ids[n] == v, n ascending (deterministic; no atomics).
//   in   dy [N…, H], ids [N…] int64
//   out  dweight [V, H]
// attrs: EmbeddingBackwardAttrs.
extern const OpKind kEmbeddingBackward;

}  // namespace hbmtune::ops

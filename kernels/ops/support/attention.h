#pragma once

#include <cstdint>

namespace hbmtune::ops {

// Common to both attention rooms. Tensors are [batch, sequence, heads, head_dim] with any strides
// but a last one of 1, so that q, k and v may be views of one buffer. Query head h reads key and
// value head h / (H / Hkv): Hkv = H is multi-head, 1 multi-query. Query s sees keys t with
// t ≤ s if causal, s − t < window if window > 0, and t ≥ starts[s] with documents.
struct AttentionAttrs {
  double scale = 1;    // usually 1/√head_dim
  int64_t causal = 1;
  int64_t window = 0;
  double dropout = 0;  // on the probabilities; then the last input is the key of random_key
  int64_t site = 0;    // which dropout of its layer this is: see ops/dropout
  int64_t documents = 0;  // the last input is starts [B, S] of document_starts
};

}  // namespace hbmtune::ops

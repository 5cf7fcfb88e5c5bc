#pragma once

#include <string>

#include "kernels/lowering/fused/context.h"

namespace hbmtune::lowering {

// Which dropout of a layer it is (ops/dropout).
inline constexpr int64_t kEmbeddingDropout = 0;
inline constexpr int64_t kAttentionDropout = 1;
inline constexpr int64_t kMlpDropout = 2;

// One decoder layer on the residual stream x [rows, hidden]; `prefix` is its name without a dot
// at the end ("model.layers.0"). With context.skip_output only its graph is wanted.
Tensor Layer(Context& context, const std::string& prefix, Tensor x);
// Its two halves, where they follow one another (no parallel block).
Tensor AttentionBlock(Context& context, const std::string& prefix, Tensor x);
Tensor MlpBlock(Context& context, const std::string& prefix, Tensor x);

}  // namespace hbmtune::lowering

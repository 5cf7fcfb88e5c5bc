#pragma once

#include "kernels/ops/support/attention_tile.h"
#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// The host's kernels of attention_tiled, for fp32 and fp64 arithmetic.
template <class C>
void TiledForward(const OpArgs& args);
template <class C>
void TiledBackward(const OpArgs& args);

// Queries and keys of one tile: 64 KiB of fp32 scores, which stay in the second-level cache beside
// their queries, keys and values. More queries would waste more of a causal mask's diagonal, fewer
// are slower in the products.
inline constexpr int64_t kQueryBlock = 64;
inline constexpr int64_t kKeyBlock = 256;

// Where the first tile of these keys begins: at a whole vector.
inline int64_t FirstKey(const KeyRange& keys) { return keys.begin / 16 * 16; }

}  // namespace hbmtune::ops

#pragma once

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// The host's kernels of attention_tiled, for fp32 and fp64 arithmetic.
template <class C>
void TiledForward(const OpArgs& args);
template <class C>
void TiledBackward(const OpArgs& args);

// Queries and keys of one tile. 128 × 256 scores are 128 KiB of fp32: a tile stays in a 1 MiB
// second-level cache beside its queries, keys and values.
inline constexpr int64_t kQueryBlock = 64;
inline constexpr int64_t kKeyBlock = 256;

}  // namespace hbmtune::ops

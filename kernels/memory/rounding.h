#pragma once

#include <cstdint>

#include "kernels/memory/allocator_config.h"

namespace hbmtune::memory {

// PyTorch's constants (c10/core/AllocatorConfig.h).
inline constexpr int64_t kMinBlockBytes = 512;
inline constexpr int64_t kSmallRequestBytes = int64_t{1} << 20;   // at most: the small pool
inline constexpr int64_t kSmallSegmentBytes = int64_t{2} << 20;
inline constexpr int64_t kMinLargeBytes = int64_t{10} << 20;      // from here on, segments fit
inline constexpr int64_t kRoundLargeBytes = int64_t{2} << 20;

constexpr int64_t RoundUpTo(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// What a block for this request measures: a multiple of 512, or the next division between two
// powers of two where the config has divisions and the request is over 512 × divisions.
int64_t RoundRequest(int64_t requested_bytes, const AllocatorConfig& config);

// What is asked of the driver for a block of that (rounded) size.
int64_t SegmentBytesFor(int64_t block_bytes, const AllocatorConfig& config);

// Pinned host memory: the next power of two, up to the config's threshold.
int64_t RoundPinned(int64_t requested_bytes, const AllocatorConfig& config);

}  // namespace hbmtune::memory

#include "kernels/memory/rounding.h"

#include <bit>

namespace hbmtune::memory {
namespace {

int64_t NextDivision(int64_t bytes, int64_t divisions) {
  uint64_t floor = std::bit_floor(static_cast<uint64_t>(bytes));
  if (floor == static_cast<uint64_t>(bytes)) return bytes;
  int64_t step = static_cast<int64_t>(floor / divisions);
  return step == 0 ? static_cast<int64_t>(floor * 2) : RoundUpTo(bytes, step);
}

}  // namespace

int64_t RoundRequest(int64_t requested_bytes, const AllocatorConfig& config) {
  if (requested_bytes < kMinBlockBytes) return kMinBlockBytes;
  int64_t divisions = config.DivisionsFor(requested_bytes);
  if (divisions > 1 && requested_bytes > kMinBlockBytes * divisions) {
    return NextDivision(requested_bytes, divisions);
  }
  return RoundUpTo(requested_bytes, kMinBlockBytes);
}

int64_t SegmentBytesFor(int64_t block_bytes, const AllocatorConfig& config) {
  if (block_bytes <= kSmallRequestBytes) return kSmallSegmentBytes;
  if (block_bytes < kMinLargeBytes) return config.large_segment_bytes;
  return RoundUpTo(block_bytes, kRoundLargeBytes);
}

int64_t RoundPinned(int64_t requested_bytes, const AllocatorConfig& config) {
  if (requested_bytes > config.pinned_max_round_bytes) return requested_bytes;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(requested_bytes)));
}

}  // namespace hbmtune::memory

#pragma once

#include <array>
#include <string_view>

#include "kernels/memory/block.h"

namespace hbmtune::memory {

// What happened, under the names that PyTorch's snapshots use.
enum class Action : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kOom,
};

inline constexpr std::array<std::string_view, 8> kActionNames = {
    "alloc",        "free_requested", "free_completed", "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "oom"};

struct AllocatorEvent {
  Action action;
  Address address;          // of the block or segment; of kOom the driver's free bytes
  int64_t bytes;            // of a block what was requested, else the size
  int64_t block_bytes;      // of a block its rounded size, else as `bytes`
  StreamId stream;
  Category category;        // of blocks
  int64_t allocated_bytes;  // after the event
  int64_t reserved_bytes;
};

// Told of every event, in order, from inside the allocator: must not call it back.
class AllocatorObserver {
 public:
  virtual ~AllocatorObserver() = default;
  virtual void OnEvent(const AllocatorEvent& event) = 0;
};

}  // namespace hbmtune::memory

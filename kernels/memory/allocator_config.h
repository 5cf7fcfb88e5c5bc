#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/visit.h"

namespace hbmtune::memory {

// Whose decisions are followed where releases of PyTorch differ (found by recording them): where
// ">" of roundup_power2_divisions begins, and which of two equal free blocks is taken.
enum class AllocatorRules : uint8_t {
  kTorch2_9,   // at the last key's own slot; the lowest address
  kTorch2_10,  // above the last key's slot; the lowest address
  kCurrent,    // from 2.11 on: above the last key's slot; the older segment
};

}  // namespace hbmtune::memory

template <>
struct hbmtune::EnumNames<hbmtune::memory::AllocatorRules> {
  static constexpr std::array<std::string_view, 3> kNames = {"torch-2.9", "torch-2.10", "current"};
};

namespace hbmtune::memory {

// The settings of PyTorch's caching allocator (PYTORCH_CUDA_ALLOC_CONF and _HIP_ALLOC_CONF), with
// its defaults. Source: c10/core/AllocatorConfig.h and c10/cuda/CUDAAllocatorConfig.h of 2.15.
struct AllocatorConfig {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  static constexpr size_t kDivisionSlots = 16;  // 1 MiB, 2 MiB, …, 32 GiB and more

  // Empty for none, one value for every size, or one for each of the 16 slots.
  std::vector<int64_t> roundup_power2_divisions;
  int64_t max_split_size_bytes = kUnlimited;
  int64_t large_segment_bytes = int64_t{20} << 20;
  int64_t max_non_split_rounding_bytes = int64_t{20} << 20;  // Parse: as large_segment_bytes
  double garbage_collection_threshold = 0;  // 0: never
  bool expandable_segments = false;
  // Of the device's capacity; 1 for no limit. Garbage collection does nothing without one.
  double per_process_memory_fraction = 1;
  int64_t pinned_max_round_bytes = kUnlimited;  // over it, pinned memory is not rounded up
  AllocatorRules rules = AllocatorRules::kCurrent;
  // Settings that change no figure of this allocator, as they were given ("backend:native").
  std::string other;

  // Divisions for a request of `bytes`, 0 for none.
  int64_t DivisionsFor(int64_t bytes) const;

  // Reads PyTorch's syntax: "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]".
  // Throws std::invalid_argument with the key, the value and what it may be; also for a key that
  // PyTorch knows but this allocator does not follow.
  static AllocatorConfig Parse(std::string_view text,
                               AllocatorRules rules = AllocatorRules::kCurrent);
  static AllocatorConfig From(const AllocatorTunables& tunables);
  // The same syntax, only what differs from the defaults; Parse gives the same config back if it
  // is told the same rules.
  std::string ToString() const;

  friend bool operator==(const AllocatorConfig&, const AllocatorConfig&) = default;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"roundup_power2_divisions", "divisions between powers of two, by size slot"},
      self.roundup_power2_divisions);
    v(Field{"max_split_size_bytes", "larger blocks are never split"}, self.max_split_size_bytes);
    v(Field{"large_segment_bytes", "segment for requests under 10 MiB"},
      self.large_segment_bytes);
    v(Field{"max_non_split_rounding_bytes", "slack of a block that may not be split"},
      self.max_non_split_rounding_bytes);
    v(Field{"garbage_collection_threshold", "part of the limit over which old blocks are freed"},
      self.garbage_collection_threshold);
    v(Field{"expandable_segments", "grow segments instead of adding new ones"},
      self.expandable_segments);
    v(Field{"per_process_memory_fraction", "part of the device that may be reserved"},
      self.per_process_memory_fraction);
    v(Field{"pinned_max_round_bytes", "larger pinned allocations are not rounded up"},
      self.pinned_max_round_bytes);
    v(Field{"rules", "the PyTorch whose decisions are followed"}, self.rules);
    v(Field{"other", "settings without effect on memory"}, self.other);
  }
};

}  // namespace hbmtune::memory

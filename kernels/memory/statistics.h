#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hbmtune::memory {

// One figure over time, as PyTorch keeps it.
struct Stat {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0;  // sum of all increases
  int64_t freed = 0;      // sum of all decreases

  void Increase(int64_t amount) {
    current += amount;
    allocated += amount;
    peak = std::max(peak, current);
  }
  void Decrease(int64_t amount) {
    current -= amount;
    freed += amount;
  }
  friend bool operator==(const Stat&, const Stat&) = default;
};

enum class PoolKind : uint8_t { kSmall, kLarge };

// The same figure for both pools together and for each.
struct PoolStat {
  Stat all, small_pool, large_pool;

  Stat& of(PoolKind pool) { return pool == PoolKind::kSmall ? small_pool : large_pool; }
  void Increase(PoolKind pool, int64_t amount) {
    all.Increase(amount);
    of(pool).Increase(amount);
  }
  void Decrease(PoolKind pool, int64_t amount) {
    all.Decrease(amount);
    of(pool).Decrease(amount);
  }
  friend bool operator==(const PoolStat&, const PoolStat&) = default;
};

// Everything that torch.cuda.memory_stats() reports, under its names.
struct AllocatorStatistics {
  PoolStat allocation;            // live blocks
  PoolStat segment;               // segments from the driver, expandable ones not counted
  PoolStat active;                // live blocks and those that wait for another stream
  PoolStat inactive_split;        // free blocks of partly used segments, expandable not counted
  PoolStat allocated_bytes;
  PoolStat reserved_bytes;
  PoolStat active_bytes;
  PoolStat inactive_split_bytes;
  PoolStat requested_bytes;       // what was asked for, before rounding
  Stat oversize_allocations;      // of max_split_size and more
  Stat oversize_segments;
  int64_t max_split_size = -1;    // -1 for unlimited
  int64_t num_alloc_retries = 0;  // driver calls repeated after the cache was released
  int64_t num_ooms = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;   // segments and mapped ranges
  int64_t num_device_free = 0;
  int64_t num_oom_rejections = 0; // of throw_on_cudamalloc_oom, which is not modelled: always 0

  // As if all that is current had always been the peak.
  void ResetPeak();
  // Sums and counts from 0; current and peak stay.
  void ResetAccumulated();

  // "allocated_bytes.all.peak" and so on, sorted by name.
  std::vector<std::pair<std::string, int64_t>> Flatten() const;

  friend bool operator==(const AllocatorStatistics&, const AllocatorStatistics&) = default;
};

}  // namespace hbmtune::memory

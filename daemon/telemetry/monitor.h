#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/telemetry/leak_detector.h"
#include "kernels/core/visit.h"

// Watches one job's memory on one device: its own allocator reports beside the driver's figures.
namespace hbmtune {

// What a job says of its caching allocator, under PyTorch's meanings, after an optimizer step.
struct AllocatorReport {
  int64_t step = 0;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t active_bytes = 0;
  int64_t alloc_retries = 0;  // counts since the job's start
  int64_t ooms = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"step", "optimizer steps done"}, self.step);
    v(Field{"allocated_bytes", "bytes in live tensors"}, self.allocated_bytes);
    v(Field{"reserved_bytes", "bytes held by the caching allocator"}, self.reserved_bytes);
    v(Field{"active_bytes", "bytes in blocks that are live or wait for a stream"},
      self.active_bytes);
    v(Field{"alloc_retries", "times the cache was released to serve a request"},
      self.alloc_retries);
    v(Field{"ooms", "requests that failed"}, self.ooms);
  }
};

enum class FindingKind : uint8_t { kLeak, kFragmentation, kIdleCache, kRetries, kOutOfMemory };
template <>
struct EnumNames<FindingKind> {
  static constexpr std::array<std::string_view, 5> kNames = {
      "leak", "fragmentation", "idle-cache", "retries", "out-of-memory"};
};

struct Finding {
  FindingKind kind = FindingKind::kLeak;
  int64_t step = 0;
  std::string message;  // what was seen, with figures
  std::string advice;   // what to do about it

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"kind", "leak, fragmentation, idle-cache, retries or out-of-memory"}, self.kind);
    v(Field{"step", "optimizer step at which it was seen"}, self.step);
    v(Field{"message", "what was seen"}, self.message);
    v(Field{"advice", "what to do about it"}, self.advice);
  }
};

// Derived figures of the last report. Absent where the driver's figure is.
struct MemoryState {
  double fragmentation_ratio = 0;    // 1 − active ÷ reserved, of their peaks so far
  int64_t cache_resident_bytes = 0;  // reserved − active
  std::optional<int64_t> outside_allocator_bytes;  // used − reserved
  std::optional<int64_t> safe_allocation_bytes;    // the driver's free memory in whole 2 MiB pages

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"fragmentation_ratio", "share of reserved memory that no block used at the peak"},
      self.fragmentation_ratio);
    v(Field{"cache_resident_bytes", "reserved memory in no live block"},
      self.cache_resident_bytes);
    v(Field{"outside_allocator_bytes", "used memory that the allocator does not hold"},
      self.outside_allocator_bytes);
    v(Field{"safe_allocation_bytes", "largest new segment that the driver can give"},
      self.safe_allocation_bytes);
  }
};

// Not thread-safe: one monitor a job and device.
class MemoryMonitor {
 public:
  // Takes a report and the driver's figures of that moment; returns what is new.
  std::vector<Finding> Add(const AllocatorReport& report, std::optional<int64_t> used_bytes,
                           std::optional<int64_t> total_bytes);
  const MemoryState& state() const { return state_; }

 private:
  void CheckFragmentation(const AllocatorReport& report, std::vector<Finding>& findings);
  void CheckCounters(const AllocatorReport& report, std::vector<Finding>& findings);

  LeakDetector leak_;
  MemoryState state_;
  std::optional<AllocatorReport> last_;
  int64_t peak_active_bytes_ = 0;
  int64_t peak_reserved_bytes_ = 0;
  int64_t idle_cache_steps_ = 0;
  bool fragmentation_told_ = false;
  bool idle_cache_told_ = false;
};

}  // namespace hbmtune

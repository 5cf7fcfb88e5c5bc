#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/observer.h"

namespace hbmtune::memory {

// The last events of an allocator, for snapshots. Recording costs about 40 bytes an event.
class EventHistory final : public AllocatorObserver {
 public:
  // `clock_us` gives the time in microseconds; without one, events are numbered.
  explicit EventHistory(size_t max_entries = 1 << 20,
                        std::function<int64_t()> clock_us = nullptr);

  void OnEvent(const AllocatorEvent& event) override;

  struct Entry {
    AllocatorEvent event;
    int64_t time_us;
  };
  // Oldest first.
  std::vector<Entry> Entries() const;
  void Clear();

 private:
  size_t max_entries_;
  std::function<int64_t()> clock_us_;
  std::vector<Entry> ring_;
  size_t next_ = 0;  // the oldest entry once the ring is full
  int64_t count_ = 0;
};

// The state of an allocator as torch.cuda.memory._snapshot() gives it: "segments",
// "device_traces", "allocator_settings". An expandable segment appears once for each mapped range.
// The category stands where PyTorch has the stack frame. Written with ToPickle, PyTorch's memory
// viewer opens it. `history` may be null.
nlohmann::ordered_json Snapshot(const CachingAllocator& allocator, const EventHistory* history);

}  // namespace hbmtune::memory

#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/modelled_source.h"

namespace hbmtune::memory {

// A trace is a JSON object (unknown keys are ignored):
//
//   {"settings": "max_split_size_mb:128",     PYTORCH_CUDA_ALLOC_CONF; default: none
//    "rules": "torch-2.9",                    or "torch-2.10" or (default) "current"
//    "capacity_bytes": 68719476736,           of the device; default: 64 GiB
//    "events_complete": "at_once" or "late",  of other streams; default: "at_once"
//    "events": [
//      ["alloc", id, bytes, stream, "category"],  stream 0 and "activations" may be left out
//      ["free", id],                          ignored if the allocation ran out of memory
//      ["record_stream", id, stream],
//      ["progress", stream],                  "late": what the stream was given has completed
//      ["empty_cache"], ["reset_peak"],
//      ["check"]]}                            a point at which statistics are of interest
//
// An id may be used again after it was freed.
struct TraceEvent {
  enum class Kind : uint8_t {
    kAlloc,
    kFree,
    kRecordStream,
    kProgress,
    kEmptyCache,
    kResetPeak,
    kCheck,
  };
  Kind kind;
  Category category = Category::kActivations;
  StreamId stream = 0;
  int32_t slot = 0;  // which live block, counted from 0
  int64_t bytes = 0;
};

struct Trace {
  AllocatorConfig config;
  int64_t capacity_bytes = int64_t{64} << 30;
  bool events_at_once = true;
  int32_t slots = 0;
  std::vector<TraceEvent> events;

  // Throws std::invalid_argument with the number of the event and what is wrong with it.
  static Trace Parse(const nlohmann::json& json);
};

// Runs traces through the allocator on a modelled device.
class TraceReplay {
 public:
  explicit TraceReplay(const Trace& trace);

  // The whole trace on a fresh allocator. Allocations that fail are counted and left out.
  void Run();

  CachingAllocator& allocator() { return allocator_; }
  int64_t failed_allocations() const { return failed_allocations_; }
  // Called at every ["check"].
  void OnCheck(std::function<void()> callback) { on_check_ = std::move(callback); }

 private:
  void Apply(const TraceEvent& event);

  const Trace& trace_;
  ModelledSource source_;
  EventsAtOnce at_once_;
  EventsOnWait on_wait_;
  CachingAllocator allocator_;
  std::vector<Block*> live_;  // by slot; nullptr where the allocation failed
  int64_t failed_allocations_ = 0;
  std::function<void()> on_check_;
};

// Reads a trace, runs it and prints the statistics, one "name value" a line, and who held the
// memory at the peak. Returns 0; 1 with a sentence if the trace is not valid; 2 if it ran but some
// allocations failed.
int ReplayTrace(std::istream& in, std::ostream& out);

}  // namespace hbmtune::memory

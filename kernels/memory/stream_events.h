#pragma once

#include <array>
#include <cstdint>

namespace hbmtune::memory {

// Streams are numbered from 0 (the default stream); a device has at most 64.
using StreamId = int32_t;
inline constexpr StreamId kMaxStreams = 64;

// How the caching allocator learns that another stream has finished with a block. A device
// implements it with its own events.
class StreamEvents {
 public:
  virtual ~StreamEvents() = default;
  // A ticket for the work queued on the stream so far.
  virtual int64_t Record(StreamId stream) = 0;
  // Whether the work behind the ticket has ended; never blocks.
  virtual bool Done(StreamId stream, int64_t ticket) = 0;
  // Blocks until it has.
  virtual void Wait(StreamId stream, int64_t ticket) = 0;
};

// Every event has completed by the time somebody looks: the lowest reserved peak.
class EventsAtOnce final : public StreamEvents {
 public:
  int64_t Record(StreamId) override { return 0; }
  bool Done(StreamId, int64_t) override { return true; }
  void Wait(StreamId, int64_t) override {}
};

// An event completes when somebody waits for it, or when Progress() says that its stream got so
// far: as late as possible, the highest reserved peak.
class EventsOnWait final : public StreamEvents {
 public:
  int64_t Record(StreamId stream) override { return ++recorded_[stream]; }
  bool Done(StreamId stream, int64_t ticket) override { return ticket <= completed_[stream]; }
  void Wait(StreamId stream, int64_t ticket) override {
    if (completed_[stream] < ticket) completed_[stream] = ticket;
  }
  int64_t recorded(StreamId stream) const { return recorded_[stream]; }  // the latest ticket
  // Everything recorded on the stream so far has completed.
  void Progress(StreamId stream) { completed_[stream] = recorded_[stream]; }

 private:
  std::array<int64_t, kMaxStreams> recorded_{};
  std::array<int64_t, kMaxStreams> completed_{};
};

}  // namespace hbmtune::memory

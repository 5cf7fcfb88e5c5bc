#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"
#include "kernels/device/host/stream_thread.h"
#include "kernels/memory/host_source.h"

namespace hbmtune::device {

struct HostDeviceOptions {
  int64_t memory_bytes = 0;              // the hard budget of device memory
  // Rate of each direction of the link to pinned memory, 0 for as fast as memcpy. A copy lasts
  // at least bytes ÷ rate: it overlaps with compute as on a real link, and overlap can be checked.
  double copy_bytes_per_second = 0;
  comm::Communicator* communicator = nullptr;  // null: one rank
};

// Real arithmetic on the CPU. Device memory is host memory under a hard budget, pinned memory is
// host memory beside it. The compute stream runs in the caller's thread, every other stream in a
// thread of its own.
class HostDevice final : public Device, private memory::StreamEvents {
 public:
  // Throws std::invalid_argument if there is no budget, or none of that size can be had here.
  explicit HostDevice(const HostDeviceOptions& options);
  ~HostDevice() override;

  std::string_view name() const override { return "host"; }
  memory::SegmentSource& memory() override { return source_; }
  memory::StreamEvents& events() override { return *this; }
  void* Pointer(memory::Address address) override { return reinterpret_cast<void*>(address); }
  // Not locked: RLIMIT_MEMLOCK does not matter. Throws OutOfMemory without a capacity.
  void* AllocatePinned(int64_t bytes) override;
  void FreePinned(void* data, int64_t bytes) override;
  int64_t pinned_bytes() const override { return pinned_bytes_; }

  void Submit(StreamId stream, const OpKind& op, const OpArgs& args) override;
  void SubmitToCpu(StreamId stream, const OpKind& op, const OpArgs& args) override;
  void Copy(StreamId stream, CopyDirection direction, const TensorArg& from,
            const TensorArg& to) override;
  void Collect(StreamId stream, CollectiveKind kind, const TensorArg& from, const TensorArg& to,
               uint32_t root) override;
  void Record(StreamId stream, EventId event) override;
  void Wait(StreamId stream, EventId event) override;
  void Synchronize() override;

  double ReadScalar(const TensorArg& from, ScalarSlot slot) override;
  void Upload(const void* from, const TensorArg& to) override;
  void Download(const TensorArg& from, void* to) override;
  void Poison(memory::Address address, int64_t bytes) override;
  double Seconds() override;

 private:
  static constexpr size_t kStreams = 64;
  // The point on a stream that an event marks.
  struct Mark {
    StreamId stream = kComputeStream;
    int64_t ticket = 0;  // 0: passed
  };

  // memory::StreamEvents, for the caching allocator.
  int64_t Record(memory::StreamId stream) override;
  bool Done(memory::StreamId stream, int64_t ticket) override;
  void Wait(memory::StreamId stream, int64_t ticket) override;

  StreamThread& thread(size_t stream);
  void OnStream(StreamId stream, std::function<void()> task);
  void CopyNow(const TensorArg& from, const TensorArg& to) const;
  void CollectNow(CollectiveKind kind, const TensorArg& from, const TensorArg& to, uint32_t root);

  HostDeviceOptions options_;
  memory::HostSource source_;
  int64_t pinned_bytes_ = 0;
  std::vector<Mark> marks_;  // by event
  // Declared last: the threads stop before what they use goes.
  std::array<std::unique_ptr<StreamThread>, kStreams> threads_;
};

}  // namespace hbmtune::device

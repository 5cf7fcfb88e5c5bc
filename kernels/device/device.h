#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/memory/segment_source.h"
#include "kernels/memory/stream_events.h"
#include "kernels/program/op_kind.h"
#include "kernels/program/program.h"

namespace hbmtune::device {

enum class CopyDirection : uint8_t { kToPinned, kToDevice, kWithinPinned };

// Where a Program runs: `host` computes, `hip` launches kernels, `model` advances a virtual clock.
// Calls come from one thread, in the order of the Program. Work on one stream runs in that order,
// streams are independent but for Record and Wait. A device may run any call before it returns.
// Memory that a call names stays valid until the Program has waited for its stream: the device
// never has to keep anything alive. Throws DeviceError when the device fails.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;
  // The driver's memory, under the caching allocator; lives as long as the device.
  virtual memory::SegmentSource& memory() = 0;
  // How that allocator learns that a stream has passed a point (Program's UseOn).
  virtual memory::StreamEvents& events() = 0;

  // What an op may dereference for this address: on host the address itself, on the model null.
  virtual void* Pointer(memory::Address address) = 0;
  // Page-locked host memory, 64-byte aligned. Counted in pinned_bytes(). Not called, and null, on
  // the model.
  virtual void* AllocatePinned(int64_t bytes) = 0;
  virtual void FreePinned(void* data, int64_t bytes) = 0;
  virtual int64_t pinned_bytes() const = 0;

  virtual void Submit(StreamId stream, const OpKind& op, const OpArgs& args) = 0;
  // The op runs on the CPU over pinned memory (AdamW of offloaded state), in the stream's order.
  virtual void SubmitToCpu(StreamId stream, const OpKind& op, const OpArgs& args) = 0;
  // Same dtype and shape; both dense, but for the direction.
  virtual void Copy(StreamId stream, CopyDirection direction, const TensorArg& from,
                    const TensorArg& to) = 0;
  // Over all ranks; `from.data == to.data` means in place.
  virtual void Collect(StreamId stream, CollectiveKind kind, const TensorArg& from,
                       const TensorArg& to, uint32_t root) = 0;
  virtual void Record(StreamId stream, EventId event) = 0;
  virtual void Wait(StreamId stream, EventId event) = 0;
  // Until every stream is idle.
  virtual void Synchronize() = 0;

  // The first element, after the compute stream has got there (a synchronisation). The model
  // answers from its scenario: 0 for kFoundInf, 1 otherwise.
  virtual double ReadScalar(const TensorArg& from, ScalarSlot slot) = 0;
  // Between host memory of the caller and a dense tensor, outside the Program: initial weights,
  // token ids, gradients for a test. Waits. Nothing on the model.
  virtual void Upload(const void* from, const TensorArg& to) = 0;
  virtual void Download(const TensorArg& from, void* to) = 0;
  // Fills freed memory with NaN's; nothing on the model.
  virtual void Poison(memory::Address address, int64_t bytes) = 0;

  // Seconds since some fixed point: a real or the virtual clock, at the last synchronisation.
  virtual double Seconds() = 0;
};

}  // namespace hbmtune::device

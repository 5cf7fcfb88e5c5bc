#include "kernels/device/host/host_device.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/core/error.h"

namespace hbmtune::device {
namespace {

constexpr size_t kAlignment = 64;

// An op with arguments of its own, for a task that outlives the call.
struct DeferredOp {
  const OpKind* op;
  std::vector<TensorArg> args;
  size_t inputs;
  Attrs attrs;

  DeferredOp(const OpKind& kind, const OpArgs& from)
      : op(&kind), args(from.in.begin(), from.in.end()), inputs(from.in.size()),
        attrs(from.attrs) {
    args.insert(args.end(), from.out.begin(), from.out.end());
  }
  void operator()() const {
    const std::span all(args);
    op->host({all.first(inputs), all.subspan(inputs), attrs});
  }
};

int64_t CheckedBudget(int64_t bytes) {
  if (bytes > 0) return bytes;
  throw std::invalid_argument("memory budget of the host device must be over 0, got " +
                              std::to_string(bytes));
}

}  // namespace

HostDevice::HostDevice(const HostDeviceOptions& options)
    : options_(options), source_(CheckedBudget(options.memory_bytes)) {}

HostDevice::~HostDevice() = default;

void* HostDevice::AllocatePinned(int64_t bytes) {
  if (bytes == 0) return nullptr;
  const size_t rounded = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) {
    throw OutOfMemory({.requested_bytes = bytes}, "", "offloading, of the host's own memory");
  }
  pinned_bytes_ += bytes;
  return data;
}

void HostDevice::FreePinned(void* data, int64_t bytes) {
  if (data == nullptr) return;
  std::free(data);
  pinned_bytes_ -= bytes;
}

// --- streams ----------------------------------------------------------------------------------

StreamThread& HostDevice::thread(size_t stream) {
  auto& thread = threads_.at(stream);
  if (thread == nullptr) thread = std::make_unique<StreamThread>();
  return *thread;
}

void HostDevice::OnStream(StreamId stream, std::function<void()> task) {
  if (stream == kComputeStream) {
    task();
  } else {
    thread(stream).Enqueue(std::move(task));
  }
}

void HostDevice::Record(StreamId stream, EventId event) {
  if (event >= marks_.size()) marks_.resize(event + 1);
  marks_[event] = Mark{stream, stream == kComputeStream ? 0 : thread(stream).last_ticket()};
}

void HostDevice::Wait(StreamId stream, EventId event) {
  if (event >= marks_.size()) return;  // never recorded: passed, as on a GPU
  const Mark mark = marks_[event];
  if (mark.ticket == 0 || mark.stream == stream) return;
  StreamThread& awaited = thread(mark.stream);
  OnStream(stream, [&awaited, ticket = mark.ticket] { awaited.Wait(ticket); });
}

void HostDevice::Synchronize() {
  for (auto& thread : threads_) {
    if (thread != nullptr) thread->Wait(thread->last_ticket());
  }
}

int64_t HostDevice::Record(memory::StreamId stream) {
  return stream == kComputeStream ? 0 : thread(stream).last_ticket();
}

bool HostDevice::Done(memory::StreamId stream, int64_t ticket) {
  return ticket == 0 || thread(stream).Done(ticket);
}

void HostDevice::Wait(memory::StreamId stream, int64_t ticket) {
  if (ticket != 0) thread(stream).Wait(ticket);
}

// --- work -------------------------------------------------------------------------------------

void HostDevice::Submit(StreamId stream, const OpKind& op, const OpArgs& args) {
  op.check(args);
  if (stream == kComputeStream) {
    op.host(args);
  } else {
    thread(stream).Enqueue(DeferredOp(op, args));
  }
}

void HostDevice::SubmitToCpu(StreamId stream, const OpKind& op, const OpArgs& args) {
  Submit(stream, op, args);
}

void HostDevice::CopyNow(const TensorArg& from, const TensorArg& to) const {
  const auto begin = std::chrono::steady_clock::now();
  std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
  if (options_.copy_bytes_per_second <= 0) return;
  const double seconds = static_cast<double>(from.bytes()) / options_.copy_bytes_per_second;
  std::this_thread::sleep_until(begin + std::chrono::duration<double>(seconds));
}

void HostDevice::Copy(StreamId stream, CopyDirection, const TensorArg& from,
                      const TensorArg& to) {
  if (from.dtype != to.dtype || from.elements() != to.elements() || !from.dense() ||
      !to.dense()) {
    throw std::invalid_argument("copy between " + std::string(Name(from.dtype)) +
                                ToString(from.shape) + " and " + std::string(Name(to.dtype)) +
                                ToString(to.shape) + ": both must be dense and of equal size");
  }
  OnStream(stream, [this, from, to] { CopyNow(from, to); });
}

void HostDevice::CollectNow(CollectiveKind kind, const TensorArg& from, const TensorArg& to,
                            uint32_t root) {
  comm::Communicator* communicator = options_.communicator;
  if (communicator == nullptr) {
    if (from.data != to.data) std::memcpy(to.data, from.data, static_cast<size_t>(to.bytes()));
    return;
  }
  switch (kind) {
    case CollectiveKind::kAllReduce: return communicator->AllReduce(from, to);
    case CollectiveKind::kReduceScatter: return communicator->ReduceScatter(from, to);
    case CollectiveKind::kAllGather: return communicator->AllGather(from, to);
    case CollectiveKind::kBroadcast: return communicator->Broadcast(from, to, root);
  }
}

void HostDevice::Collect(StreamId stream, CollectiveKind kind, const TensorArg& from,
                         const TensorArg& to, uint32_t root) {
  OnStream(stream, [this, kind, from, to, root] { CollectNow(kind, from, to, root); });
}

double HostDevice::ReadScalar(const TensorArg& from, ScalarSlot) {
  switch (from.dtype) {
    case Dtype::kF32: return *from.as<float>();
    case Dtype::kF64: return *from.as<double>();
    case Dtype::kI32: return *from.as<int32_t>();
    default: break;
  }
  throw std::invalid_argument("a scalar that the host reads must be fp32, fp64 or int32, not " +
                              std::string(Name(from.dtype)));
}

void HostDevice::Upload(const void* from, const TensorArg& to) {
  std::memcpy(to.data, from, static_cast<size_t>(to.bytes()));
}

void HostDevice::Download(const TensorArg& from, void* to) {
  std::memcpy(to, from.data, static_cast<size_t>(from.bytes()));
}

// 0xFF in every byte is a NaN in each of fp32, fp64, bf16 and fp16.
void HostDevice::Poison(memory::Address address, int64_t bytes) {
  std::memset(Pointer(address), 0xFF, static_cast<size_t>(bytes));
}

double HostDevice::Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace hbmtune::device

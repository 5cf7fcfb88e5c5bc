#include "kernels/step/executor.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/core/error.h"
#include "kernels/core/units.h"
#include "kernels/step/pinned_plan.h"
#include "kernels/step/slot.h"

namespace hbmtune::step {

namespace {

// The device's pinned memory as the pool's source.
class DevicePinned final : public memory::PinnedSource {
 public:
  explicit DevicePinned(device::Device& device) : device_(device) {}
  std::byte* Allocate(int64_t bytes) override {
    return static_cast<std::byte*>(device_.AllocatePinned(bytes));
  }
  void Free(std::byte* memory, int64_t bytes) override { device_.FreePinned(memory, bytes); }

 private:
  device::Device& device_;
};

}  // namespace

Executor::Executor(const Program& program, device::Device& device,
                   const memory::AllocatorConfig& allocator, const ExecutorOptions& options)
    : program_(&program),
      device_(device),
      options_(options),
      allocator_(allocator, device.memory(), device.events()),
      slots_(program.storage_count) {
  const int64_t needed = std::max(PinnedBytes(program), options.later_pinned_bytes);
  if (needed == 0) return;
  if (options.pool_bytes != 0 && options.pool_bytes < needed) {
    throw std::invalid_argument("the pinned pool of " + FormatBytes(options.pool_bytes) +
                                " is too small: offloading needs " + FormatBytes(needed));
  }
  const bool modelled = device_.Pointer(memory::AddressSpace::kUnitBytes) == nullptr;
  pinned_source_ = std::make_unique<DevicePinned>(device_);
  pinned_ = std::make_unique<memory::PinnedPool>(std::max(needed, options.pool_bytes),
                                                 modelled ? nullptr : pinned_source_.get());
}

Executor::~Executor() {
  // After an exception streams may still use the memory.
  try {
    device_.Synchronize();
  } catch (const DeviceError&) {
  }
}

void Executor::RunSetup() { RunSection(0, program_->first_step); }

void Executor::RunFirstStep() { RunSection(program_->first_step, program_->steady_step); }

void Executor::RunSteadyStep() { RunSection(program_->steady_step, program_->code.size()); }

void Executor::RunSection(size_t begin, size_t end) {
  for (position_ = begin; position_ < end; ++position_) {
    if (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed)) throw Cancelled();
    std::visit([this](const auto& instruction) { Execute(instruction); },
               program_->code[position_]);
  }
}

// --- memory -----------------------------------------------------------------------------------

StorageId Executor::Advance(StorageId storage, int32_t stride) const {
  if (stride == 0 || loops_.empty()) return storage;
  return static_cast<StorageId>(storage + stride * loops_.back().iteration);
}

Executor::Slot& Executor::Live(StorageId storage, const char* what) {
  Slot& slot = slots_[storage];
  if (!slot.live) {
    throw std::logic_error(std::string(what) + " of storage " + std::to_string(storage) +
                           ", which is not allocated, at instruction " +
                           std::to_string(position_));
  }
  return slot;
}

void Executor::Execute(const Allocate& instruction) {
  const StorageId storage = Advance(instruction.storage, instruction.storage_stride);
  Slot& slot = slots_[storage];
  if (slot.live) {
    throw std::logic_error("storage " + std::to_string(storage) + " is allocated twice");
  }
  slot = Slot{};
  slot.bytes = instruction.bytes;
  slot.live = true;
  if (instruction.space == MemorySpace::kPinned) {
    slot.pinned = true;
    slot.slice = pinned_->Take(instruction.bytes);
    slot.data = slot.slice.data;
    return;
  }
  try {
    slot.block = allocator_.Allocate(instruction.bytes, instruction.category, instruction.stream);
  } catch (const OutOfMemory& error) {
    slot.live = false;
    throw OutOfMemory(error.shortage(), std::string(Name(phase_)),
                      std::string(OpThatAsked(storage)));
  }
  if (slot.block != nullptr) slot.data = device_.Pointer(slot.block->address);
  NoteAllocation();
  peak_storage_ = peak_position_ == position_ ? storage : peak_storage_;
}

void Executor::NoteAllocation() {
  const int64_t allocated = allocator_.allocated_bytes();
  int64_t& phase_peak = peaks_.allocated_by_phase[static_cast<size_t>(phase_)];
  phase_peak = std::max(phase_peak, allocated);
  if (allocated <= peaks_.allocated_bytes) return;
  peaks_.allocated_bytes = allocated;
  peaks_.phase = phase_;
  peak_position_ = position_;
}

void Executor::Execute(const Free& instruction) {
  Slot& slot = Live(Advance(instruction.storage, instruction.storage_stride), "free");
  slot.live = false;
  if (slot.pinned) {
    pinned_->Return(slot.slice);
    return;
  }
  if (options_.poison && slot.block != nullptr) {
    device_.Poison(slot.block->address, slot.block->bytes);
  }
  allocator_.Free(slot.block);
}

void Executor::Execute(const UseOn& instruction) {
  Slot& slot = Live(Advance(instruction.storage, instruction.storage_stride), "use");
  if (slot.block != nullptr) allocator_.RecordStream(slot.block, instruction.stream);
}

namespace {

// Whether the instruction has a view of the storage among its arguments, and what it is called.
struct UserOf {
  const Program& program;
  StorageId storage;

  bool Is(ViewId view) const { return program.views[view].storage == storage; }
  std::string_view operator()(const Run& run) const {
    for (size_t i = 0; i < size_t{run.inputs} + run.outputs; ++i) {
      if (Is(program.args[run.first_arg + i])) return run.op->name;
    }
    return {};
  }
  std::string_view operator()(const Copy& copy) const {
    return Is(copy.from) || Is(copy.to) ? "copy" : std::string_view{};
  }
  std::string_view operator()(const Collective& collective) const {
    return Is(collective.from) || Is(collective.to) ? Name(collective.kind) : std::string_view{};
  }
  std::string_view operator()(const Feed& feed) const {
    return Is(feed.token_ids) || Is(feed.labels) ? "feed" : std::string_view{};
  }
  template <class T>
  std::string_view operator()(const T&) const {
    return {};
  }
};

}  // namespace

std::string_view Executor::OpThatAsked(StorageId storage) const {
  // Inside a Repeat of layers the text names the storage of the first one.
  const auto* allocate = std::get_if<Allocate>(&program_->code[position_]);
  const UserOf user{*program_, allocate != nullptr ? allocate->storage : storage};
  for (size_t i = position_ + 1; i < program_->code.size(); ++i) {
    std::string_view name = std::visit(user, program_->code[i]);
    if (!name.empty()) return name;
    const auto* freed = std::get_if<hbmtune::Free>(&program_->code[i]);
    if (freed != nullptr && freed->storage == user.storage) break;
  }
  return {};
}

// --- work -------------------------------------------------------------------------------------

void Executor::Bind(const View& view, TensorArg& arg) const {
  const Slot& slot = slots_[Advance(view.storage, view.storage_stride)];
  if (!slot.live) {
    throw std::logic_error("instruction " + std::to_string(position_) + " uses storage " +
                           std::to_string(view.storage) + ", which is not allocated");
  }
  arg.data = slot.data == nullptr ? nullptr : static_cast<char*>(slot.data) + view.offset_bytes;
  arg.dtype = view.dtype;
  arg.shape = view.shape;
  arg.strides = view.strides;
}

TensorArg Executor::Resolve(ViewId view) const {
  TensorArg arg;
  Bind(program_->views[view], arg);
  return arg;
}

void Executor::Execute(const Run& run) {
  const size_t count = size_t{run.inputs} + run.outputs;
  if (args_.size() < count) args_.resize(count);
  bool on_cpu = count > 0;
  for (size_t i = 0; i < count; ++i) {
    const View& view = program_->views[program_->args[run.first_arg + i]];
    Bind(view, args_[i]);
    on_cpu = on_cpu && slots_[Advance(view.storage, view.storage_stride)].pinned;
  }
  const OpArgs args{std::span(args_.data(), run.inputs),
                    std::span(args_.data() + run.inputs, run.outputs),
                    program_->attrs[run.attrs]};
  if (on_cpu) {
    device_.SubmitToCpu(run.stream, *run.op, args);
  } else {
    device_.Submit(run.stream, *run.op, args);
  }
}

void Executor::Execute(const Copy& copy) {
  const TensorArg from = Resolve(copy.from);
  const TensorArg to = Resolve(copy.to);
  const View& target = program_->views[copy.to];
  const View& source = program_->views[copy.from];
  const bool to_pinned = slots_[Advance(target.storage, target.storage_stride)].pinned;
  const bool from_pinned = slots_[Advance(source.storage, source.storage_stride)].pinned;
  device::CopyDirection direction = device::CopyDirection::kToDevice;
  if (to_pinned) {
    direction = from_pinned ? device::CopyDirection::kWithinPinned
                            : device::CopyDirection::kToPinned;
  }
  device_.Copy(copy.stream, direction, from, to);
}

void Executor::Execute(const Collective& collective) {
  device_.Collect(collective.stream, collective.kind, Resolve(collective.from),
                  Resolve(collective.to), collective.root);
}

void Executor::Execute(const Record& record) { device_.Record(record.stream, record.event); }

// The compute stream waits in the host's place: no Program of hbmtune's own makes the host wait.
void Executor::Execute(const Wait& wait) {
  device_.Wait(wait.stream == kHostThread ? kComputeStream : wait.stream, wait.event);
}

void Executor::Execute(const ReadScalar& read) {
  scalars_[read.slot] =
      device_.ReadScalar(Resolve(read.from), static_cast<ScalarSlot>(read.slot));
}

void Executor::Execute(const Phase& phase) {
  phase_ = phase.kind;
  if (on_phase_) on_phase_(phase_);
}

void Executor::Execute(const Feed& feed) {
  const TensorArg token_ids = Resolve(feed.token_ids);
  const TensorArg labels = Resolve(feed.labels);
  if (!feed_ || token_ids.data == nullptr) return;
  std::vector<int64_t> tokens(token_ids.elements());
  std::vector<int64_t> targets(labels.elements());
  feed_(tokens.data(), targets.data(), token_ids.shape[0], token_ids.shape[1]);
  device_.Upload(tokens.data(), token_ids);
  device_.Upload(targets.data(), labels);
}

void Executor::Execute(const Repeat& repeat) {
  if (repeat.count > 0) {
    loops_.push_back(Loop{position_, repeat.count, 0});
    return;
  }
  for (int depth = 1; depth > 0;) {
    ++position_;
    if (std::holds_alternative<Repeat>(program_->code[position_])) ++depth;
    if (std::holds_alternative<End>(program_->code[position_])) --depth;
  }
}

void Executor::Execute(const End&) {
  Loop& loop = loops_.back();
  if (++loop.iteration < loop.count) {
    position_ = loop.begin;
  } else {
    loops_.pop_back();
  }
}

// --- figures ----------------------------------------------------------------------------------

std::optional<double> Executor::scalar(ScalarSlot slot) const {
  return scalars_[static_cast<size_t>(slot)];
}

TensorArg Executor::Find(std::string_view name) const {
  for (const auto* list : {&program_->parameters, &program_->state}) {
    for (const NamedView& named : *list) {
      if (named.name != name) continue;
      if (!slots_[program_->views[named.view].storage].live) {
        throw std::invalid_argument(named.name + " is not allocated now");
      }
      return Resolve(named.view);
    }
  }
  throw std::invalid_argument("the program has no tensor named '" + std::string(name) + "'");
}

const MemoryPeaks& Executor::Peaks() {
  peaks_.reserved_bytes = allocator_.statistics().reserved_bytes.all.peak;
  const memory::AllocatedPeak peak = allocator_.allocated_peak();
  peaks_.breakdown.clear();
  for (size_t i = 0; i < kCategoryCount; ++i) {
    if (peak.by_category[i] == 0) continue;
    peaks_.breakdown.push_back({static_cast<Category>(i), peak.by_category[i]});
  }
  const size_t now = std::exchange(position_, peak_position_);
  if (position_ < program_->code.size()) peaks_.op = OpThatAsked(peak_storage_);
  position_ = now;
  return peaks_;
}

void Executor::ResetPeaks() {
  allocator_.ResetPeak();
  peaks_ = MemoryPeaks{};
  peaks_.allocated_bytes = allocator_.allocated_bytes();
}

std::vector<StorageId> Executor::LiveStorages() const {
  std::vector<StorageId> live;
  for (StorageId id = 0; id < slots_.size(); ++id) {
    if (slots_[id].live) live.push_back(id);
  }
  return live;
}

}  // namespace hbmtune::step

#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/result.h"
#include "kernels/device/device.h"
#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/pinned_pool.h"
#include "kernels/program/program.h"

namespace hbmtune::step {

struct ExecutorOptions {
  // Freed device memory becomes NaN's, so that a read after free cannot go unnoticed.
  bool poison = false;
  // Pinned memory that may be used, 0 for what the Program needs. It is one pool, taken up front;
  // the constructor refuses one that is too small (std::invalid_argument).
  int64_t pool_bytes = 0;
  // Pinned memory that Programs need which are adopted later, where it is more.
  int64_t later_pinned_bytes = 0;
};

// Most bytes that were allocated while a phase ran.
inline constexpr size_t kPhaseCount = EnumNames<PhaseKind>::kNames.size();
using ByPhase = std::array<int64_t, kPhaseCount>;

// Memory over a whole run, or since the last ResetPeaks.
struct MemoryPeaks {
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  PhaseKind phase = PhaseKind::kSetup;       // when allocated was at its peak
  std::string_view op;                       // the op whose tensor reached the peak, if any
  std::vector<CategoryBytes> breakdown;      // of the allocated peak, without zeros
  ByPhase allocated_by_phase{};
};

// Fills one micro-batch: token ids and labels, both row-major [rows, tokens] int64.
using FeedFn =
    std::function<void(int64_t* token_ids, int64_t* labels, int64_t rows, int64_t tokens)>;

// Thrown at the next instruction after the flag of set_cancel was set.
class Cancelled : public std::exception {
 public:
  const char* what() const noexcept override { return "cancelled"; }
};

// Walks a Program on a device: the same allocations in the same order on each. One thread.
// Program (the latest adopted) and device must outlive the executor.
class Executor {
 public:
  Executor(const Program& program, device::Device& device,
           const memory::AllocatorConfig& allocator, const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Who fills the micro-batches; without one they stay as allocated.
  void set_feed(FeedFn feed) { feed_ = std::move(feed); }
  void set_cancel(const std::atomic<bool>* cancel) { cancel_ = cancel; }
  // Told of every phase as it begins.
  void set_on_phase(std::function<void(PhaseKind)> on_phase) { on_phase_ = std::move(on_phase); }

  // The sections, in this order: setup once, the first step once, the steady step any number of
  // times. Each throws OutOfMemory with phase and op, or DeviceError. After an exception the
  // executor can only be destroyed or asked for its figures.
  void RunSetup();
  void RunFirstStep();
  void RunSteadyStep();

  // Between two steps: goes on with the steady step of `next`, the same step with other state,
  // which takes over what lives between steps. A tensor of the same name keeps its numbers,
  // converted if its dtype is another; NAME.master begins as NAME.part, what the optimizer
  // updates; what `next` does not have is freed. Throws OutOfMemory in phase optimizer, op
  // promotion, and std::logic_error if the two Programs differ in more.
  void Adopt(const Program& next);

  // What the Program last read into the slot; nothing if it never did.
  std::optional<double> scalar(ScalarSlot slot) const;

  // A parameter or state tensor by name (Program::parameters, ::state), while it is live.
  // Throws std::invalid_argument for an unknown name or a tensor that is not allocated now.
  TensorArg Find(std::string_view name) const;
  TensorArg Resolve(ViewId view) const;

  const MemoryPeaks& Peaks();
  void ResetPeaks();
  PhaseKind phase() const { return phase_; }
  memory::CachingAllocator& allocator() { return allocator_; }
  // Host memory that was taken for offloading.
  int64_t pinned_bytes() const { return pinned_ == nullptr ? 0 : pinned_->capacity_bytes(); }
  device::Device& device() { return device_; }
  // Storages that are live now, by id.
  std::vector<StorageId> LiveStorages() const;

 private:
  struct Slot;
  struct Loop;

  void RunSection(size_t begin, size_t end);
  void Execute(const Allocate& instruction);
  void Execute(const Free& instruction);
  void Execute(const Run& instruction);
  void Execute(const Copy& instruction);
  void Execute(const Collective& instruction);
  void Execute(const Record& instruction);
  void Execute(const Wait& instruction);
  void Execute(const UseOn& instruction);
  void Execute(const ReadScalar& instruction);
  void Execute(const Phase& instruction);
  void Execute(const Feed& instruction);
  void Execute(const Repeat& instruction);
  void Execute(const End& instruction);

  StorageId Advance(StorageId storage, int32_t stride) const;
  Slot& Live(StorageId storage, const char* what);
  void Bind(const View& view, TensorArg& arg) const;
  // For Adopt: memory of a tensor that `next` has anew; its numbers are copied from `from`.
  void Convert(const TensorArg& from, const Allocate& allocate, const View& view, Slot& slot);
  // The first op after the running instruction that has the storage as an argument.
  std::string_view OpThatAsked(StorageId storage) const;
  void NoteAllocation();

  const Program* program_;
  device::Device& device_;
  ExecutorOptions options_;
  memory::CachingAllocator allocator_;
  std::unique_ptr<memory::PinnedSource> pinned_source_;
  std::unique_ptr<memory::PinnedPool> pinned_;  // null if the Program offloads nothing
  FeedFn feed_;
  const std::atomic<bool>* cancel_ = nullptr;
  std::function<void(PhaseKind)> on_phase_;

  std::vector<Slot> slots_;       // by storage
  std::vector<Loop> loops_;       // Repeats that are running, outermost first
  std::vector<TensorArg> args_;   // of the instruction that is running
  size_t position_ = 0;           // of the instruction that is running
  PhaseKind phase_ = PhaseKind::kSetup;
  std::array<std::optional<double>, 3> scalars_;
  MemoryPeaks peaks_;
  StorageId peak_storage_ = 0;
  size_t peak_position_ = 0;
};

}  // namespace hbmtune::step

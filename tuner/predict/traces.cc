#include "tuner/predict/traces.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "kernels/core/json.h"
#include "kernels/lowering/fused.h"
#include "kernels/lowering/hf.h"
#include "kernels/lowering/period.h"
#include "kernels/program/too_large.h"

namespace hbmtune::predict {
namespace {

// Two micro-steps show everything that memory does: the first gradients, and added ones.
constexpr int64_t kMicroSteps = 2;
// Kept traces take at most so much: a folded one some 100 KiB, one that is not up to 1 MiB.
constexpr int64_t kKeptBytes = int64_t{16} << 20;
constexpr size_t kKeptResults = 4096;  // of some 500 bytes

using Trace = std::shared_ptr<const device::FoldedTrace>;

class TraceCache {
 public:
  Trace Find(const std::string& key) {
    std::lock_guard lock(mutex_);
    auto found = traces_.find(key);
    return found == traces_.end() ? nullptr : found->second;
  }
  void Add(const std::string& key, Trace trace) {
    std::lock_guard lock(mutex_);
    const int64_t bytes = trace->MemoryBytes();
    if (!traces_.emplace(key, std::move(trace)).second) return;
    order_.push_back(key);
    bytes_ += bytes;
    while (bytes_ > kKeptBytes && order_.size() > 1) {
      auto oldest = traces_.find(order_.front());
      bytes_ -= oldest->second->MemoryBytes();
      traces_.erase(oldest);
      order_.pop_front();
    }
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, Trace> traces_;
  std::deque<std::string> order_;
  int64_t bytes_ = 0;
};

// What the allocator made of a trace. A result belongs to the very trace that it was found with.
class MemoryCache {
 public:
  std::optional<device::DryRunMemory> Find(const Trace& trace, const std::string& key) {
    std::lock_guard lock(mutex_);
    auto found = results_.find(key);
    if (found == results_.end() || found->second.trace.lock() != trace) return std::nullopt;
    return found->second.memory;
  }
  void Add(const Trace& trace, const std::string& key, const device::DryRunMemory& memory) {
    std::lock_guard lock(mutex_);
    if (results_.size() >= kKeptResults) results_.clear();
    results_[key] = {trace, memory};
  }

 private:
  struct Result {
    std::weak_ptr<const device::FoldedTrace> trace;
    device::DryRunMemory memory;
  };
  std::mutex mutex_;
  std::unordered_map<std::string, Result> results_;
};

TraceCache& Cache() {
  static TraceCache cache;
  return cache;
}

// What one lowering is of, beside the config.
struct Rows {
  int64_t rank = 0;
  int64_t tokens = 0;  // of a row; 0: seq_len
};

void LowerFor(const Workload& workload, const TrainConfig& config,
              const device::DeviceProfile& profile, const Rows& rows, Program& program) {
  if (workload.framework == Framework::kFused) {
    lowering::FusedOptions options;
    options.row_tokens = rows.tokens;
    options.rank = rows.rank;
    if (config.promotion.grad_norm_threshold > 0) {  // who is promoted, data decides: at most all
      for (std::string& name : lowering::TrainedNames(workload)) {
        options.promoted.insert(std::move(name));
      }
    }
    program = lowering::LowerFused(workload, config, options);
    return;
  }
  lowering::HfOptions options;
  options.gpu.compute_units = static_cast<int64_t>(profile.compute_units.value);
  options.gpu.workspace_bytes = profile.workspace_bytes();
  options.gpu.capacity_bytes = static_cast<int64_t>(profile.capacity_bytes.value);
  options.rank = rows.rank;
  options.save = config.zero.gather_16bit_weights_on_model_save;
  // hipBLASLt's workspace belongs to thread and stream (PyTorch PR 156495); the CUDA build takes
  // cuBLASLt's anew for each product, as recorded.
  options.gpu.keeps_workspace = profile.architecture.rfind("gfx", 0) == 0;
  lowering::LowerHf(workload, config, options, program);
}

device::StepTrace TraceWith(Workload workload, const TrainConfig& config,
                            const device::DeviceProfile& profile, const Rows& rows,
                            int64_t layers) {
  // Fresh memory for every Program cost a quarter of the time; that of a large one is not kept.
  thread_local Program program;
  constexpr size_t kLargeViews = 16384;  // 2 MiB of them
  workload.model.layers = layers;
  LowerFor(workload, config, profile, rows, program);
  device::StepTrace trace = device::TraceOf(program);
  if (program.views.capacity() > kLargeViews) program = {};
  return trace;
}

// From a model of three periods and one of four, where that is less work than the whole.
device::FoldedTrace TraceOfRank(const Workload& workload, const TrainConfig& config,
                                const device::DeviceProfile& profile, const Rows& rows) {
  const int64_t layers = workload.model.layers;
  if (const auto period = lowering::LayerPeriod(workload, config)) {
    const int64_t few = 3 * *period + layers % *period;
    if (2 * few + *period < layers) {
      auto folded = device::Fold(TraceWith(workload, config, profile, rows, few),
                                 TraceWith(workload, config, profile, rows, few + *period),
                                 (layers - few) / *period);
      if (folded) return std::move(*folded);
    }
  }
  return device::Folded(TraceWith(workload, config, profile, rows, layers));
}

// Of all ranks the last reduces first, while most activations are alive; the first keeps the
// embedding, whose gradient is the last and often the largest. The worse of the two stands for all;
// stage 0, DDP and DeepSpeed's stage 3 treat ranks alike.
device::FoldedTrace MakeTrace(const Workload& workload, const TrainConfig& config,
                              const device::DeviceProfile& profile, int64_t row_tokens) {
  const int64_t last = std::max<int64_t>(1, workload.world_size) - 1;
  // What is gathered to be saved goes to the first one's host.
  const bool saves = config.zero.gather_16bit_weights_on_model_save;
  device::FoldedTrace trace =
      TraceOfRank(workload, config, profile, {saves ? 0 : last, row_tokens});
  const int64_t stage = config.zero.stage;
  const bool alike = stage < 1 || (stage == 3 && workload.framework != Framework::kFused);
  if (last == 0 || alike) return trace;
  device::FoldedTrace first = TraceOfRank(workload, config, profile, {0, row_tokens});
  const bool worse = device::PeakOfBlocks(first, {}).bytes > device::PeakOfBlocks(trace, {}).bytes;
  return worse ? std::move(first) : std::move(trace);
}

}  // namespace

device::DryRunMemory MemoryFor(const Trace& trace, const AllocatorTunables& allocator,
                               int64_t capacity_bytes) {
  static MemoryCache cache;
  const std::string key = std::to_string(reinterpret_cast<uintptr_t>(trace.get())) +
                          ToJson(allocator).dump() + std::to_string(capacity_bytes);
  if (auto known = cache.Find(trace, key)) return *known;
  const device::DryRunMemory memory = device::DryRunAllocator(
      *trace, memory::AllocatorConfig::From(allocator), capacity_bytes);
  cache.Add(trace, key, memory);
  return memory;
}

int64_t ExtraMicroSteps(const TrainConfig& config) {
  return std::max<int64_t>(0, config.grad_accum - kMicroSteps);
}

absl::StatusOr<Trace> FoldedFor(const Workload& workload, const TrainConfig& config,
                                const device::DeviceProfile& profile, int64_t row_tokens) {
  Workload shown = workload;
  shown.global_batch = 0;
  TrainConfig lowered = config;
  lowered.grad_accum = std::min(config.grad_accum, kMicroSteps);
  lowered.allocator = {};
  lowered.cleanup_every_steps = 0;
  const std::string key =
      ToJson(shown).dump() + ToJson(lowered).dump() + profile.name + profile.architecture +
      std::to_string(row_tokens);
  if (auto trace = Cache().Find(key)) return trace;
  try {
    auto trace = std::make_shared<const device::FoldedTrace>(
        MakeTrace(shown, lowered, profile, row_tokens));
    Cache().Add(key, trace);
    return trace;
  } catch (const TensorTooLarge& error) {
    return absl::OutOfRangeError(error.what());
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

absl::StatusOr<std::shared_ptr<const device::StepTrace>> TraceFor(
    const Workload& workload, const TrainConfig& config, const device::DeviceProfile& profile) {
  auto folded = FoldedFor(workload, config, profile);
  if (!folded.ok()) return folded.status();
  return std::make_shared<const device::StepTrace>(device::Unfold(**folded));
}

}  // namespace hbmtune::predict

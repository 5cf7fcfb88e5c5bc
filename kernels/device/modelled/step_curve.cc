#include "kernels/device/modelled/step_curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "kernels/device/modelled/dry_run.h"
#include "kernels/memory/modelled_source.h"

namespace hbmtune::device {
namespace {

// Over what any job takes, and little enough that expandable segments, which reserve addresses for
// all of it, find room.
constexpr int64_t kEndless = int64_t{1} << 48;

// The rules of DryRunClock without its sums: when work on a stream can begin.
class CurveClock {
 public:
  CurveClock(const StepTrace& trace, const DeviceProfile& profile, int64_t world_size)
      : trace_(trace), profile_(profile), ranks_(world_size), events_(trace.event_count) {
    for (const TraceKernel& kernel : trace.work) {
      kernel_seconds_.push_back(KernelSeconds(profile, kernel.op, kernel.cost, kernel.dtype));
    }
  }

  double Now() const { return std::max(host_, streams_[kComputeStream]); }
  double End() const {
    return std::max(host_, *std::max_element(streams_.begin(), streams_.end()));
  }

  void Take(const TraceOp& op) {
    using Kind = TraceOp::Kind;
    switch (op.kind) {
      case Kind::kRun: Kernel(op); break;
      case Kind::kCopyOut: Copy(op, profile_.device_to_host_bytes_per_second.value); break;
      case Kind::kCopyIn: Copy(op, profile_.host_to_device_bytes_per_second.value); break;
      case Kind::kCollective: Collect(op); break;
      case Kind::kRecord: events_[op.id] = streams_[op.stream]; break;
      case Kind::kWait: {
        double& waits = op.stream == kHostThread ? host_ : streams_[op.stream];
        waits = std::max(waits, events_[op.id]);
        break;
      }
      case Kind::kReadScalar: host_ = Now() + profile_.copy_seconds.value; break;
      default: break;
    }
  }

 private:
  void Issue(StreamId stream, double seconds) {
    host_ += profile_.issue_seconds.value;
    streams_[stream] = std::max(streams_[stream], host_) + seconds;
  }

  void Kernel(const TraceOp& op) {
    if (static_cast<TraceWork>(op.detail) != TraceWork::kCpu) {
      return Issue(op.stream, kernel_seconds_[op.id]);
    }
    const double rate = profile_.cpu_adam_parameters_per_second.value;
    const bool steps = trace_.work[op.id].cost.kind == CostClass::kOptimizer && rate > 0;
    host_ = std::max(host_, streams_[op.stream]);
    if (steps) host_ += trace_.work[op.id].elements / rate;
    streams_[op.stream] = host_;
  }

  void Copy(const TraceOp& op, double bytes_per_second) {
    const double bytes = static_cast<double>(op.bytes);
    Issue(op.stream, std::max(profile_.copy_seconds.value, bytes / bytes_per_second));
  }

  void Collect(const TraceOp& op) {
    if (ranks_ < 2) return;
    const bool reduces = static_cast<CollectiveKind>(op.detail) == CollectiveKind::kAllReduce;
    const double share = static_cast<double>(ranks_ - 1) / static_cast<double>(ranks_);
    const double moved = (reduces ? 2 : 1) * share * static_cast<double>(op.bytes);
    Issue(op.stream, profile_.collective_seconds.value +
                         moved / profile_.collective_bytes_per_second.value);
  }

  const StepTrace& trace_;
  const DeviceProfile& profile_;
  const int64_t ranks_;
  std::vector<double> kernel_seconds_;
  std::vector<double> events_;
  std::array<double, 256> streams_{};
  double host_ = 0;
};

class Curve {
 public:
  Curve(const StepTrace& trace, const memory::AllocatorConfig& config,
        const DeviceProfile& profile, int64_t world_size, int64_t capacity_bytes)
      : trace_(trace),
        source_(capacity_bytes > 0 ? capacity_bytes : kEndless),
        allocator_(config, source_, events_),
        blocks_(trace.storage_count),
        clock_(trace, profile, world_size),
        timeline_([this] { return clock_.Now(); }) {}

  // `before`: steady steps until the reserved memory stands.
  StepCurve Run(int64_t before) {
    Section(0, trace_.steady_step);
    for (int64_t i = 0; i < before; ++i) Section(trace_.steady_step, trace_.ops.size());
    const size_t base = AddBase();
    allocator_.AddObserver(&timeline_);
    drawn_ = true;
    Section(trace_.steady_step, trace_.ops.size());
    StepCurve curve{timeline_.Samples(), timeline_.phases(), clock_.End()};
    curve.samples.erase(curve.samples.begin(), curve.samples.begin() + static_cast<long>(base));
    return curve;
  }

 private:
  // The curve counts from nothing: what is live already is told to it. Returns how many samples
  // that makes but for the last, which is where the step begins.
  size_t AddBase() {
    for (size_t i = 0; i < kCategoryCount; ++i) {
      const int64_t bytes = allocator_.allocated_by_category()[i];
      timeline_.OnEvent({memory::Action::kAlloc, 0, bytes, bytes, 0, static_cast<Category>(i),
                         allocator_.allocated_bytes(), allocator_.reserved_bytes()});
    }
    return kCategoryCount - 1;
  }

  void Section(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) Take(trace_.ops[i]);
  }

  void Take(const TraceOp& op) {
    if (drawn_) clock_.Take(op);
    using Kind = TraceOp::Kind;
    if (op.kind == Kind::kPhase && drawn_) {
      timeline_.Mark(std::string(Name(static_cast<PhaseKind>(op.detail))));
    }
    if (op.pinned) return;
    if (op.kind == Kind::kAllocate) {
      blocks_[op.id] = allocator_.Allocate(op.bytes, static_cast<Category>(op.detail), op.stream);
    } else if (op.kind == Kind::kFree) {
      allocator_.Free(blocks_[op.id]);
      blocks_[op.id] = nullptr;
    } else if (op.kind == Kind::kUseOn && blocks_[op.id] != nullptr) {
      allocator_.RecordStream(blocks_[op.id], op.stream);
    }
  }

  const StepTrace& trace_;
  memory::ModelledSource source_;
  memory::EventsAtOnce events_;
  memory::CachingAllocator allocator_;
  std::vector<memory::Block*> blocks_;
  CurveClock clock_;
  memory::Timeline timeline_;
  bool drawn_ = false;
};

}  // namespace

StepCurve DryRunCurve(const StepTrace& trace, const memory::AllocatorConfig& config,
                      const DeviceProfile& profile, int64_t world_size, int64_t capacity_bytes) {
  const DryRunMemory memory = DryRunAllocator(trace, config, capacity_bytes);
  return Curve(trace, config, profile, world_size, capacity_bytes).Run(memory.steady_steps);
}

std::vector<memory::Timeline::Sample> Thin(const std::vector<memory::Timeline::Sample>& samples,
                                           size_t most) {
  if (samples.size() <= most || samples.empty()) return samples;
  const size_t stretches = std::max<size_t>(1, (most - 1) / 2);
  const double width = samples.back().seconds / static_cast<double>(stretches);
  std::vector<memory::Timeline::Sample> thin;
  for (size_t begin = 0; begin < samples.size();) {
    const double end = (std::floor(samples[begin].seconds / width) + 1) * width;
    size_t allocated = begin, reserved = begin, i = begin;
    for (; i < samples.size() && samples[i].seconds < end; ++i) {
      if (samples[i].allocated_bytes > samples[allocated].allocated_bytes) allocated = i;
      if (samples[i].reserved_bytes > samples[reserved].reserved_bytes) reserved = i;
    }
    i = std::max(i, begin + 1);
    thin.push_back(samples[std::min(allocated, reserved)]);
    if (allocated != reserved) thin.push_back(samples[std::max(allocated, reserved)]);
    begin = i;
  }
  if (thin.back().seconds < samples.back().seconds) thin.push_back(samples.back());
  return thin;
}

}  // namespace hbmtune::device

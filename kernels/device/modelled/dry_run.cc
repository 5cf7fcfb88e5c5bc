#include "kernels/device/modelled/dry_run.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/memory/modelled_source.h"

namespace hbmtune::device {
namespace {

// Over what any job takes, and little enough that expandable segments, which reserve addresses for
// all of it, find room.
constexpr int64_t kEndless = int64_t{1} << 48;
// Reserved memory stands after a step or two; a trace that still grows leaks.
constexpr int64_t kMostSteadySteps = 6;

// Takes the ops of runs [begin, end), repetitions written out.
template <class Taker>
void Walk(const FoldedTrace& trace, size_t begin, size_t end, Taker& taker) {
  for (size_t r = begin; r < end; ++r) {
    const FoldedTrace::Run& run = trace.runs[r];
    for (int64_t t = 0; t < run.times; ++t) {
      for (uint32_t i = run.begin; i < run.end; ++i) {
        const TraceOp& op = trace.ops[i];
        taker.Take(op, op.id + static_cast<uint32_t>(t * trace.id_steps[i]));
      }
    }
  }
}

class Replay {
 public:
  Replay(const FoldedTrace& trace, const memory::AllocatorConfig& config, int64_t capacity_bytes,
         OtherStreams others)
      : trace_(trace),
        source_(capacity_bytes > 0 ? capacity_bytes : kEndless),
        late_(others == OtherStreams::kDoneLate),
        allocator_(config, source_, Events()),
        done_with_(trace.event_count),
        blocks_(trace.storage_count) {}

  DryRunMemory Run() {
    Section(0, trace_.first_step);
    Section(trace_.first_step, trace_.steady_step);
    int64_t reserved = -1;
    while (memory_.steady_steps < kMostSteadySteps && reserved != allocator_.reserved_bytes()) {
      reserved = allocator_.reserved_bytes();
      const int64_t calls = DriverCalls();
      Section(trace_.steady_step, trace_.runs.size());
      memory_.steady_driver_calls = DriverCalls() - calls;
      ++memory_.steady_steps;
    }
    return Figures();
  }

  void Take(const TraceOp& op, uint32_t id) {
    switch (op.kind) {
      case TraceOp::Kind::kAllocate: Allocate(op, id); break;
      case TraceOp::Kind::kFree: Free(op, id); break;
      case TraceOp::Kind::kUseOn:
        if (blocks_[id] != nullptr) allocator_.RecordStream(blocks_[id], op.stream);
        break;
      case TraceOp::Kind::kPhase: phase_ = static_cast<PhaseKind>(op.detail); break;
      case TraceOp::Kind::kRecord:
        if (late_) done_with_[id] = DoneWith(op.stream);
        break;
      case TraceOp::Kind::kWait:
        if (late_) Join(op.stream, done_with_[id]);
        break;
      case TraceOp::Kind::kReadScalar:
        if (late_) Join(kHostThread, DoneWith(kComputeStream));
        break;
      default: break;
    }
  }

 private:
  void Section(size_t begin, size_t end) { Walk(trace_, begin, end, *this); }

  memory::StreamEvents& Events() {
    if (late_) return on_wait_;
    return at_once_;
  }

  int64_t DriverCalls() const {
    const memory::AllocatorStatistics& statistics = allocator_.statistics();
    return statistics.num_device_alloc + statistics.num_device_free;
  }

  // By stream: how many of its events are over.
  using Done = std::array<int64_t, kGatherStream + 1>;

  // What is over when a stream gets to where it is.
  Done DoneWith(StreamId stream) const {
    Done done = joined_.at(stream);
    done.at(stream) = on_wait_.recorded(stream);
    return done;
  }

  void Join(StreamId stream, const Done& done) {
    for (size_t s = 0; s < done.size(); ++s) {
      if (stream == kHostThread) {
        on_wait_.Wait(static_cast<memory::StreamId>(s), done[s]);
      } else {
        joined_.at(stream)[s] = std::max(joined_.at(stream)[s], done[s]);
      }
    }
  }

  void Allocate(const TraceOp& op, uint32_t id) {
    if (op.pinned) {
      pinned_now_ += op.bytes;
      memory_.pinned_bytes = std::max(memory_.pinned_bytes, pinned_now_);
      return;
    }
    try {
      blocks_[id] = allocator_.Allocate(op.bytes, static_cast<Category>(op.detail), op.stream);
    } catch (const OutOfMemory& error) {
      throw OutOfMemory(error.shortage(), std::string(Name(phase_)));
    }
    const int64_t now = allocator_.allocated_bytes();
    int64_t& phase_peak = memory_.allocated_by_phase[static_cast<size_t>(phase_)];
    phase_peak = std::max(phase_peak, now);
    if (now > memory_.peak_allocated_bytes) {
      memory_.peak_allocated_bytes = now;
      memory_.peak_phase = phase_;
    }
  }

  void Free(const TraceOp& op, uint32_t id) {
    if (op.pinned) {
      pinned_now_ -= op.bytes;
      return;
    }
    memory::Block*& block = blocks_[id];
    if (block == nullptr && op.bytes > 0) throw std::logic_error("a trace frees what is not there");
    allocator_.Free(block);
    block = nullptr;
  }

  DryRunMemory Figures() {
    memory_.peak_reserved_bytes = allocator_.statistics().reserved_bytes.all.peak;
    memory_.alloc_retries = allocator_.statistics().num_alloc_retries;
    const memory::AllocatedPeak peak = allocator_.allocated_peak();
    for (size_t i = 0; i < kCategoryCount; ++i) {
      if (peak.by_category[i] == 0) continue;
      memory_.breakdown.push_back({static_cast<Category>(i), peak.by_category[i]});
    }
    return std::move(memory_);
  }

  const FoldedTrace& trace_;
  memory::ModelledSource source_;
  memory::EventsAtOnce at_once_;
  memory::EventsOnWait on_wait_;
  const bool late_;
  memory::CachingAllocator allocator_;
  std::vector<Done> done_with_;  // by event
  std::array<Done, kGatherStream + 1> joined_{};  // by stream: what it has waited for
  std::vector<memory::Block*> blocks_;
  int64_t pinned_now_ = 0;
  PhaseKind phase_ = PhaseKind::kSetup;
  DryRunMemory memory_;
};

// Bytes that one rank moves for a collective over `ranks`, as a ring does it.
double RingBytes(CollectiveKind kind, double bytes, int64_t ranks) {
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return kind == CollectiveKind::kAllReduce ? 2 * share * bytes : share * bytes;
}

class Clock {
 public:
  Clock(const FoldedTrace& trace, const DeviceProfile& profile, int64_t world_size)
      : trace_(trace), profile_(profile), ranks_(world_size), events_(trace.event_count) {
    for (const TraceKernel& kernel : trace.work) {
      kernel_seconds_.push_back(KernelSeconds(profile, kernel.op, kernel.cost, kernel.dtype));
    }
  }

  DryRunTime Run(int64_t extra_micro_steps) {
    const size_t micro_end = extra_micro_steps > 0 ? FirstMicroStepEnd() : trace_.steady_step;
    // After a few alike micro-steps each adds what the last did: the rest is a multiple of it.
    constexpr int64_t kPlayed = 4;
    DryRunTime before;
    double host_before = 0;
    for (int64_t n = 0; n < std::min(extra_micro_steps, kPlayed); ++n) {
      before = time_;
      host_before = Front();
      Section(trace_.steady_step, micro_end);
    }
    const int64_t rest = std::max<int64_t>(0, extra_micro_steps - kPlayed);
    if (rest > 0) Repeat(before, Front() - host_before, static_cast<double>(rest));
    Section(trace_.steady_step, trace_.runs.size());
    Join();
    time_.step_seconds = host_;
    return time_;
  }

  void Take(const TraceOp& op, uint32_t id) {
    switch (op.kind) {
      case TraceOp::Kind::kRun: Kernel(op); break;
      case TraceOp::Kind::kCopyOut:
        Copy(op, profile_.device_to_host_bytes_per_second.value);
        break;
      case TraceOp::Kind::kCopyIn: Copy(op, profile_.host_to_device_bytes_per_second.value); break;
      case TraceOp::Kind::kCollective: Collect(op); break;
      case TraceOp::Kind::kRecord: events_[id] = streams_[op.stream]; break;
      case TraceOp::Kind::kWait: {
        double& waits = op.stream == kHostThread ? host_ : streams_[op.stream];
        waits = std::max(waits, events_[id]);
        break;
      }
      case TraceOp::Kind::kReadScalar:
        host_ = std::max(host_, streams_[kComputeStream]) + profile_.copy_seconds.value;
        break;
      default: break;
    }
  }

 private:
  void Section(size_t begin, size_t end) { Walk(trace_, begin, end, *this); }

  // The run in which the second forward pass of the steady step begins, or what follows the only
  // one.
  size_t FirstMicroStepEnd() const {
    bool entered = false;
    for (size_t i = trace_.steady_step; i < trace_.runs.size(); ++i) {
      const TraceOp& first = trace_.ops[trace_.runs[i].begin];
      if (first.kind != TraceOp::Kind::kPhase) continue;
      const auto phase = static_cast<PhaseKind>(first.detail);
      const bool micro = phase == PhaseKind::kForward || phase == PhaseKind::kLoss ||
                         phase == PhaseKind::kBackward;
      if (entered && (!micro || phase == PhaseKind::kForward)) return i;
      entered = true;
    }
    return trace_.runs.size();
  }

  // When host and streams are all done.
  double Front() const {
    return std::max(host_, *std::max_element(streams_.begin(), streams_.end()));
  }

  // Adds `times` what was spent since `before`; every clock moves on by `times` × `seconds`.
  void Repeat(const DryRunTime& before, double seconds, double times) {
    for (size_t i = 0; i < kTraceWorkCount; ++i) {
      time_.work_seconds[i] += times * (time_.work_seconds[i] - before.work_seconds[i]);
    }
    time_.copy_seconds += times * (time_.copy_seconds - before.copy_seconds);
    time_.collective_seconds += times * (time_.collective_seconds - before.collective_seconds);
    time_.issue_seconds += times * (time_.issue_seconds - before.issue_seconds);
    host_ += times * seconds;
    for (double& stream : streams_) stream += times * seconds;
    for (double& event : events_) event += times * seconds;
    for (Busy& busy : busy_) busy.begin += times * seconds, busy.end += times * seconds;
  }

  void Join() {
    for (double stream : streams_) host_ = std::max(host_, stream);
  }

  // When work that is issued now can begin on a stream.
  double Begin(StreamId stream) {
    const double issue = profile_.issue_seconds.value;
    host_ += issue;
    time_.issue_seconds += issue;
    return std::max(streams_[stream], host_);
  }

  // A copy or collective of that length at the end of a stream, and what kernels beside it lose.
  void Transfer(StreamId stream, double seconds, double share) {
    const double begin = Begin(stream);
    Busy& busy = busy_[stream];
    if (begin > busy.end) busy.begin = begin;  // else it goes on
    busy.end = begin + seconds;
    busy.share = std::min(share, 0.9);
    streams_[stream] = busy.end;
  }

  // Seconds that a kernel which would run in [begin, end) takes longer. Streams of transfers are
  // few and low.
  double Lost(StreamId stream, double begin, double end) const {
    double lost = 0;
    for (StreamId other = 0; other <= kGatherStream; ++other) {
      const Busy& busy = busy_[other];
      if (other == stream || busy.end <= begin) continue;
      const double overlap = std::min(end, busy.end) - std::max(begin, busy.begin);
      lost += std::max(overlap, 0.0) * busy.share;
    }
    return lost;
  }

  // Of the memory's bandwidth, when `passes` bytes are read or written for each that moves.
  double MemoryShare(double bytes_per_second, double passes) const {
    const double bandwidth =
        profile_.memory_bytes_per_second.value * profile_.memory_efficiency_ratio.value;
    return bandwidth > 0 ? passes * bytes_per_second / bandwidth : 0;
  }

  void Kernel(const TraceOp& op) {
    if (static_cast<TraceWork>(op.detail) == TraceWork::kCpu) {
      const double rate = profile_.cpu_adam_parameters_per_second.value;
      const bool steps = trace_.work[op.id].cost.kind == CostClass::kOptimizer;
      const double seconds = steps && rate > 0 ? trace_.work[op.id].elements / rate : 0;
      host_ = std::max(host_, streams_[op.stream]) + seconds;
      streams_[op.stream] = host_;
      time_.work_seconds[op.detail] += seconds;
      return;
    }
    const double begin = Begin(op.stream);
    const double alone = begin + kernel_seconds_[op.id];
    streams_[op.stream] = alone + Lost(op.stream, begin, alone);
    time_.work_seconds[op.detail] += streams_[op.stream] - begin;
  }

  void Copy(const TraceOp& op, double bytes_per_second) {
    const double seconds =
        std::max(profile_.copy_seconds.value, static_cast<double>(op.bytes) / bytes_per_second);
    time_.copy_seconds += seconds;
    Transfer(op.stream, seconds, MemoryShare(bytes_per_second, 1));
  }

  void Collect(const TraceOp& op) {
    if (ranks_ < 2) return;
    const double moved = RingBytes(static_cast<CollectiveKind>(op.detail),
                                   static_cast<double>(op.bytes), ranks_);
    const double seconds = profile_.collective_seconds.value +
                           moved / profile_.collective_bytes_per_second.value;
    time_.collective_seconds += seconds;
    const double units = profile_.compute_units.value;
    const double channels = units > 0 ? profile_.rccl_channels.value / units : 0;
    Transfer(op.stream, seconds,
             std::max(channels, MemoryShare(profile_.collective_bytes_per_second.value, 3)));
  }

  const FoldedTrace& trace_;
  const DeviceProfile& profile_;
  const int64_t ranks_;
  std::vector<double> kernel_seconds_;
  std::vector<double> events_;
  std::array<double, 256> streams_{};
  struct Busy {  // transfers without a pause, the latest of a stream
    double begin = 0, end = 0;
    double share = 0;
  };
  std::array<Busy, 256> busy_{};
  double host_ = 0;
  DryRunTime time_;
};

}  // namespace

DryRunMemory DryRunAllocator(const FoldedTrace& trace, const memory::AllocatorConfig& config,
                             int64_t capacity_bytes, OtherStreams others) {
  return Replay(trace, config, capacity_bytes, others).Run();
}
DryRunMemory DryRunAllocator(const StepTrace& trace, const memory::AllocatorConfig& config,
                             int64_t capacity_bytes) {
  return DryRunAllocator(Folded(trace), config, capacity_bytes);
}

DryRunTime DryRunClock(const FoldedTrace& trace, const DeviceProfile& profile, int64_t world_size,
                       int64_t extra_micro_steps) {
  return Clock(trace, profile, world_size).Run(extra_micro_steps);
}
DryRunTime DryRunClock(const StepTrace& trace, const DeviceProfile& profile, int64_t world_size,
                       int64_t extra_micro_steps) {
  return DryRunClock(Folded(trace), profile, world_size, extra_micro_steps);
}

}  // namespace hbmtune::device

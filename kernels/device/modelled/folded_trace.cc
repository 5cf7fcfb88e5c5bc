#include "kernels/device/modelled/folded_trace.h"

#include "kernels/memory/rounding.h"

namespace hbmtune::device {
namespace {

using Kind = TraceOp::Kind;

bool HasId(const TraceOp& op) {
  return op.kind == Kind::kAllocate || op.kind == Kind::kFree || op.kind == Kind::kUseOn ||
         op.kind == Kind::kRecord || op.kind == Kind::kWait;
}

// Live blocks, and the state in which they were most.
class BlockSum {
 public:
  explicit BlockSum(const memory::AllocatorConfig& config) : config_(config) {}

  void Walk(const FoldedTrace& trace, const FoldedTrace::Run& run) {
    const std::array<int64_t, kCategoryCount> before = live_;
    const int64_t bytes_before = bytes_;
    for (uint32_t i = run.begin; i < run.end; ++i) Take(trace.ops[i]);
    if (run.times < 2) return;
    // The last repetition is as high as the first, or higher by what those between them add.
    std::array<int64_t, kCategoryCount> added{};
    for (size_t c = 0; c < kCategoryCount; ++c) added[c] = live_[c] - before[c];
    const int64_t bytes_added = bytes_ - bytes_before;
    if (bytes_added <= 0) {
      Skip(added, bytes_added, run.times - 1);
      return;
    }
    Skip(added, bytes_added, run.times - 2);
    for (uint32_t i = run.begin; i < run.end; ++i) Take(trace.ops[i]);
  }

  const BlockPeak& peak() const { return peak_; }

 private:
  void Skip(const std::array<int64_t, kCategoryCount>& added, int64_t bytes, int64_t times) {
    for (size_t c = 0; c < kCategoryCount; ++c) live_[c] += times * added[c];
    bytes_ += times * bytes;
  }

  void Take(const TraceOp& op) {
    if (op.kind == Kind::kPhase) phase_ = static_cast<PhaseKind>(op.detail);
    if (op.kind != Kind::kAllocate && op.kind != Kind::kFree) return;
    if (op.pinned || op.bytes == 0) return;
    const int64_t block = memory::RoundRequest(op.bytes, config_);
    const int64_t change = op.kind == Kind::kAllocate ? block : -block;
    live_[op.detail] += change;
    bytes_ += change;
    if (bytes_ <= peak_.bytes) return;
    peak_ = {bytes_, live_, phase_};
  }

  const memory::AllocatorConfig& config_;
  std::array<int64_t, kCategoryCount> live_{};
  int64_t bytes_ = 0;
  PhaseKind phase_ = PhaseKind::kSetup;
  BlockPeak peak_;
};

// Begins a run at each phase, so that a step can be cut there.
void AddRuns(FoldedTrace& folded, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; ++i) {
    if (i > begin && folded.ops[i].kind == Kind::kPhase) {
      folded.runs.push_back({begin, i, 1});
      begin = i;
    }
  }
  if (begin < end) folded.runs.push_back({begin, end, 1});
}

}  // namespace

int64_t FoldedTrace::OpCount() const {
  int64_t count = 0;
  for (const Run& run : runs) count += (run.end - run.begin) * run.times;
  return count;
}

int64_t FoldedTrace::MemoryBytes() const {
  return static_cast<int64_t>(sizeof *this + ops.size() * (sizeof ops[0] + sizeof id_steps[0]) +
                              runs.size() * sizeof runs[0] + work.size() * sizeof work[0]);
}

FoldedTrace Folded(StepTrace trace) {
  FoldedTrace folded;
  folded.ops = std::move(trace.ops);
  folded.id_steps.assign(folded.ops.size(), 0);
  AddRuns(folded, 0, static_cast<uint32_t>(trace.first_step));
  folded.first_step = folded.runs.size();
  AddRuns(folded, static_cast<uint32_t>(trace.first_step),
          static_cast<uint32_t>(trace.steady_step));
  folded.steady_step = folded.runs.size();
  AddRuns(folded, static_cast<uint32_t>(trace.steady_step),
          static_cast<uint32_t>(folded.ops.size()));
  folded.storage_count = trace.storage_count;
  folded.event_count = trace.event_count;
  folded.work = std::move(trace.work);
  return folded;
}

StepTrace Unfold(const FoldedTrace& folded) {
  StepTrace trace;
  trace.ops.reserve(static_cast<size_t>(folded.OpCount()));
  for (size_t r = 0; r < folded.runs.size(); ++r) {
    if (r == folded.first_step) trace.first_step = trace.ops.size();
    if (r == folded.steady_step) trace.steady_step = trace.ops.size();
    const FoldedTrace::Run& run = folded.runs[r];
    for (int64_t t = 0; t < run.times; ++t) {
      for (uint32_t i = run.begin; i < run.end; ++i) {
        TraceOp op = folded.ops[i];
        if (HasId(op)) op.id += static_cast<uint32_t>(t * folded.id_steps[i]);
        trace.ops.push_back(op);
      }
    }
  }
  trace.storage_count = folded.storage_count;
  trace.event_count = folded.event_count;
  trace.work = folded.work;
  return trace;
}

BlockPeak PeakOfBlocks(const FoldedTrace& trace, const memory::AllocatorConfig& config) {
  BlockSum sum(config);
  for (const FoldedTrace::Run& run : trace.runs) sum.Walk(trace, run);
  return sum.peak();
}

}  // namespace hbmtune::device

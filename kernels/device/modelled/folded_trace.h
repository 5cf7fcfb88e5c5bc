#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/device/modelled/step_trace.h"
#include "kernels/memory/allocator_config.h"

namespace hbmtune::device {

// A StepTrace with the runs of alike layers written once. A model of N layers repeats the same
// few stretches N times (weights, forward, backward, gradients, optimizer, …), so that a trace
// of three layers and one of four tell the trace of any number.
struct FoldedTrace {
  // ops[begin, end) `times` over; in repetition t, counted from 0, a storage or event is
  // op.id + t × id_steps[op].
  struct Run {
    uint32_t begin = 0, end = 0;
    int64_t times = 1;
  };
  std::vector<TraceOp> ops;
  std::vector<int32_t> id_steps;
  std::vector<Run> runs;      // a kPhase always begins one
  size_t first_step = 0;      // runs, where the first and the steady step begin
  size_t steady_step = 0;
  uint32_t storage_count = 0;
  uint32_t event_count = 0;
  std::vector<TraceKernel> work;

  int64_t OpCount() const;    // written out
  int64_t MemoryBytes() const;  // that this object takes
};

// Nothing repeated.
FoldedTrace Folded(StepTrace trace);

// The trace of a model with `more` periods more than `shorter` has, given the one with a single
// period more. Stretches that the longer has and the shorter lacks must follow their like; sizes,
// kernels and ids outside them may differ and are continued linearly. Nothing where that does not
// hold. It is exact for programs that treat layers alike; tests compare it with the written-out
// trace, op by op, for every lowering. A Program that counts elements or layers (buckets, offload
// plans) must not be folded.
std::optional<FoldedTrace> Fold(const StepTrace& shorter, const StepTrace& longer, int64_t more);

// Written out. Equal to what TraceOf says of the whole Program but for the order of `work`.
StepTrace Unfold(const FoldedTrace& folded);

// The highest sum of live blocks, each rounded as the allocator rounds it, in setup, first step
// and one steady step. What the allocator itself calls allocated is the same or more: it leaves
// up to 1 MiB of slack in large blocks, depending on what it finds free. Found without walking the
// repetitions: they all add the same.
struct BlockPeak {
  int64_t bytes = 0;
  std::array<int64_t, kCategoryCount> by_category{};
  PhaseKind phase = PhaseKind::kSetup;
};
BlockPeak PeakOfBlocks(const FoldedTrace& trace, const memory::AllocatorConfig& config);

}  // namespace hbmtune::device

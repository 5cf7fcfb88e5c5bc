#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/core/result.h"
#include "kernels/device/modelled/folded_trace.h"
#include "kernels/device/modelled/step_trace.h"
#include "kernels/device/profile.h"
#include "kernels/memory/allocator_config.h"
#include "kernels/memory/caching_allocator.h"

namespace hbmtune::device {

// Memory of a run: its setup, its first step, and steady steps until the reserved memory stands.
struct DryRunMemory {
  int64_t peak_allocated_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  PhaseKind peak_phase = PhaseKind::kSetup;
  std::vector<CategoryBytes> breakdown;  // at the allocated peak, without zeros
  std::array<int64_t, EnumNames<PhaseKind>::kNames.size()> allocated_by_phase{};
  int64_t pinned_bytes = 0;  // most host memory at once
  int64_t steady_steps = 0;  // that were needed
  int64_t alloc_retries = 0;
  int64_t steady_driver_calls = 0;  // segments taken and given back in the last steady step
};

// When the allocator learns that another stream has finished with a block: at once, or as late as
// possible, which is when the host waits for an event (or reads a number) behind that work: on its
// stream, or on one that had waited for it. The truth lies between; blocks that one stream alone
// uses do not depend on it.
enum class OtherStreams : uint8_t { kDoneAtOnce, kDoneLate };

// The trace through the caching allocator on a device of that capacity; 0 for one without end.
// Throws OutOfMemory, with the phase, when the capacity does not suffice, and std::logic_error for
// a trace that frees what it did not allocate.
DryRunMemory DryRunAllocator(const FoldedTrace& trace, const memory::AllocatorConfig& config,
                             int64_t capacity_bytes = 0,
                             OtherStreams others = OtherStreams::kDoneAtOnce);
DryRunMemory DryRunAllocator(const StepTrace& trace, const memory::AllocatorConfig& config,
                             int64_t capacity_bytes = 0);

// Time of the steady step. The host issues work one operation after the other (issue_seconds);
// each stream runs its work in order, after the host has issued it and after what it waits for.
// The host joins the compute stream where a number is read back or the CPU steps the optimizer.
// A kernel yields to copies and collectives that run beside it: for the time in which they overlap
// it loses the larger of their share of the memory's bandwidth (a copy passes each byte once, a
// collective three times: read, received, written) and the channels' share of the compute units.
// Transfers keep their pace; kernels of two streams do not slow each other down.
struct DryRunTime {
  double step_seconds = 0;
  std::array<double, kTraceWorkCount> work_seconds{};  // of kernels, by TraceWork
  double copy_seconds = 0;
  double collective_seconds = 0;
  double issue_seconds = 0;  // of the host
};
// `extra_micro_steps`: how often the first micro-step runs beyond those in the trace.
DryRunTime DryRunClock(const FoldedTrace& trace, const DeviceProfile& profile, int64_t world_size,
                       int64_t extra_micro_steps = 0);
DryRunTime DryRunClock(const StepTrace& trace, const DeviceProfile& profile, int64_t world_size,
                       int64_t extra_micro_steps = 0);

}  // namespace hbmtune::device

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device/modelled/step_trace.h"
#include "kernels/device/profile.h"
#include "kernels/memory/allocator_config.h"
#include "kernels/memory/timeline.h"

namespace hbmtune::device {

// Memory over one optimizer step in the steady state.
struct StepCurve {
  // After each change, from 0 on: what is live when the step begins stands in the first.
  std::vector<memory::Timeline::Sample> samples;
  std::vector<memory::Timeline::Phase> phases;  // "forward", "backward", … and where they begin
  double seconds = 0;                           // of the step
};

// The steady step of a trace through the caching allocator, once the reserved memory stands, on
// the virtual clock: an allocation is drawn when the work that it is for can begin. Capacity as
// in DryRunAllocator; throws OutOfMemory likewise.
StepCurve DryRunCurve(const StepTrace& trace, const memory::AllocatorConfig& config,
                      const DeviceProfile& profile, int64_t world_size,
                      int64_t capacity_bytes = 0);

// At most `most` samples: of each stretch of time the one with most allocated and the one with
// most reserved, and the last.
std::vector<memory::Timeline::Sample> Thin(const std::vector<memory::Timeline::Sample>& samples,
                                           size_t most);

}  // namespace hbmtune::device

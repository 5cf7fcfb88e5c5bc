#include "tuner/predict/timeline.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/device/modelled/dry_run.h"
#include "kernels/device/modelled/step_curve.h"
#include "tuner/predict/traces.h"

namespace hbmtune {
namespace {

using device::StepCurve;

constexpr int64_t kFewestPoints = 16;

// The capacity under which the estimate's reserved peak comes out: none, or what may be used.
int64_t CapacityOf(const device::StepTrace& trace, const memory::AllocatorConfig& allocator,
                   int64_t room_bytes, const Estimate& estimate) {
  const auto free = device::DryRunAllocator(trace, allocator);
  return free.peak_reserved_bytes > estimate.peak_reserved_bytes ? room_bytes : 0;
}

std::vector<TimelinePhase> PhasesOf(const StepCurve& curve) {
  std::vector<TimelinePhase> phases;
  for (const memory::Timeline::Phase& phase : curve.phases) {
    if (!phases.empty()) phases.back().end_seconds = phase.seconds;
    if (!phases.empty() && phases.back().name == phase.label) continue;
    phases.push_back({phase.label, phase.seconds, curve.seconds});
  }
  if (!phases.empty()) phases.back().end_seconds = curve.seconds;
  return phases;
}

std::vector<Category> Holders(const std::vector<memory::Timeline::Sample>& samples) {
  std::vector<Category> holders;
  for (size_t i = 0; i < kCategoryCount; ++i) {
    const bool holds = std::any_of(samples.begin(), samples.end(),
                                   [&](const auto& s) { return s.by_category[i] > 0; });
    if (holds) holders.push_back(static_cast<Category>(i));
  }
  return holders;
}

StepTimeline Draw(const StepCurve& curve, int64_t points) {
  StepTimeline timeline;
  timeline.step_seconds = curve.seconds;
  const auto samples = device::Thin(curve.samples, static_cast<size_t>(points));
  timeline.categories = Holders(samples);
  timeline.phases = PhasesOf(curve);
  for (const auto& sample : samples) {
    TimelinePoint point{sample.seconds, sample.allocated_bytes, sample.reserved_bytes, {}};
    for (Category category : timeline.categories) {
      point.category_bytes.push_back(sample.by_category[static_cast<size_t>(category)]);
    }
    timeline.points.push_back(std::move(point));
  }
  return timeline;
}

}  // namespace

absl::StatusOr<StepTimeline> PredictTimeline(const Workload& workload, const TrainConfig& config,
                                             const device::DeviceProfile& profile,
                                             const Ceiling& ceiling, int64_t points) {
  auto estimate = Predict(workload, config, profile, ceiling);
  if (!estimate.ok()) return estimate.status();
  auto trace = predict::TraceFor(workload, config, profile);
  const auto allocator = memory::AllocatorConfig::From(config.allocator);
  // Where no lowering is trusted, sums stand in for it, and they have no order in time.
  if (!trace.ok() || device::DryRunAllocator(**trace, allocator).peak_allocated_bytes !=
                         estimate->peak_allocated_bytes) {
    return absl::FailedPreconditionError(
        "no timeline: for " + std::string(Name(workload.framework)) +
        " with this config the estimate is a sum of known parts, which has no order in time");
  }
  const int64_t outside = estimate->peak_used_bytes - estimate->peak_reserved_bytes;
  try {
    const int64_t capacity =
        CapacityOf(**trace, allocator, estimate->ceiling_bytes - outside, *estimate);
    StepTimeline timeline =
        Draw(device::DryRunCurve(**trace, allocator, profile, workload.world_size, capacity),
             std::max(points, kFewestPoints));
    timeline.drawn_micro_steps = std::min<int64_t>(config.grad_accum, 2);
    timeline.outside_bytes = outside;
    timeline.first_step_peak_bytes = estimate->peak_allocated_bytes;
    return timeline;
  } catch (const OutOfMemory& error) {
    return absl::FailedPreconditionError(std::string("no timeline: ") + error.what());
  }
}

}  // namespace hbmtune

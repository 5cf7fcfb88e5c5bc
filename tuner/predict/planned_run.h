#pragma once

#include <absl/status/statusor.h>
#include <memory>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/device/modelled/dry_run.h"
#include "kernels/device/profile.h"

namespace hbmtune::predict {

// What an estimate plays: one steady step again and again; or, where rows are padded to the longest
// of their step, a few steps of drawn lengths and one of seq_len where the order says so.
struct PlannedRun {
  std::shared_ptr<const device::FoldedTrace> memory;
  int64_t steady_steps = 1;    // in the steady section of `memory`
  device::DryRunTime time;     // of a steady step; the mean of those of drawn lengths
  double tokens_per_step = 0;  // of a rank, likewise; padding is not counted
};

// Errors as FoldedFor. Thread-safe.
absl::StatusOr<PlannedRun> PlanRun(const Workload& workload, const TrainConfig& config,
                                   const device::DeviceProfile& profile);

}  // namespace hbmtune::predict

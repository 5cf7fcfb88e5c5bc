#pragma once

#include <absl/status/statusor.h>
#include <memory>
#include <string>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/device/modelled/dry_run.h"
#include "kernels/device/modelled/folded_trace.h"
#include "kernels/device/modelled/step_trace.h"
#include "kernels/device/profile.h"

namespace hbmtune::predict {

// The framework's Program of a config, ready for dry runs, with alike layers written once where
// they are alike. Configs that differ only in what a Program does not depend on (allocator
// settings, micro-steps beyond two) share one; the latest 16 MiB of them are kept.
// INVALID_ARGUMENT names what the framework's lowering does not model. Thread-safe. `row_tokens`:
// what rows are padded to, 0 for seq_len.
absl::StatusOr<std::shared_ptr<const device::FoldedTrace>> FoldedFor(
    const Workload& workload, const TrainConfig& config, const device::DeviceProfile& profile,
    int64_t row_tokens = 0);

// The same written out, made anew by each call.
absl::StatusOr<std::shared_ptr<const device::StepTrace>> TraceFor(
    const Workload& workload, const TrainConfig& config, const device::DeviceProfile& profile);

// The trace through the allocator; remembered for the latest few thousand, because configs that
// differ in micro-steps alone share it. Throws OutOfMemory as DryRunAllocator does. Thread-safe.
device::DryRunMemory MemoryFor(const std::shared_ptr<const device::FoldedTrace>& trace,
                               const AllocatorTunables& allocator, int64_t capacity_bytes = 0);

// Micro-steps of the config that its trace does not hold.
int64_t ExtraMicroSteps(const TrainConfig& config);

}  // namespace hbmtune::predict

#include "tuner/predict/planned_run.h"

#include <vector>

#include "kernels/core/row_lengths.h"
#include "kernels/device/modelled/chain.h"
#include "tuner/predict/traces.h"

namespace hbmtune::predict {
namespace {

using device::DryRunTime;

// A probe's warm-up step and the eight that it times, drawn from the seed that it has.
constexpr size_t kDrawnSteps = 9;
constexpr uint64_t kSeed = 0;

void Add(const DryRunTime& step, double share, DryRunTime& mean) {
  mean.step_seconds += share * step.step_seconds;
  for (size_t i = 0; i < device::kTraceWorkCount; ++i) {
    mean.work_seconds[i] += share * step.work_seconds[i];
  }
  mean.copy_seconds += share * step.copy_seconds;
  mean.collective_seconds += share * step.collective_seconds;
  mean.issue_seconds += share * step.issue_seconds;
}

DryRunTime ClockOf(const device::FoldedTrace& trace, const Workload& workload,
                   const TrainConfig& config, const device::DeviceProfile& profile) {
  return DryRunClock(trace, profile, workload.world_size, ExtraMicroSteps(config));
}

std::vector<StepRows> DrawRows(const Workload& workload, const TrainConfig& config) {
  const SequenceOrder order = workload.sequences.order;
  RowLengths lengths(workload, config, kSeed, 0);
  std::vector<StepRows> rows;
  for (size_t i = 0; i < kDrawnSteps; ++i) {
    const bool longest = i == 0 && order == SequenceOrder::kLongestFirst;
    rows.push_back(longest ? lengths.NextWithLongest() : lengths.Next());
  }
  if (order == SequenceOrder::kLongestLate) rows.push_back(lengths.NextWithLongest());
  return rows;
}

absl::StatusOr<PlannedRun> PlanPaddedRun(const Workload& workload, const TrainConfig& config,
                                         const device::DeviceProfile& profile) {
  const std::vector<StepRows> rows = DrawRows(workload, config);
  PlannedRun run;
  std::vector<std::shared_ptr<const device::FoldedTrace>> traces;
  constexpr double kShare = 1.0 / (kDrawnSteps - 1);  // the first is warm-up
  for (size_t i = 0; i < rows.size(); ++i) {
    auto trace = FoldedFor(workload, config, profile, rows[i].padded_tokens);
    if (!trace.ok()) return trace.status();
    traces.push_back(*trace);
    if (i == 0 || i >= kDrawnSteps) continue;
    Add(ClockOf(**trace, workload, config, profile), kShare, run.time);
    run.tokens_per_step += kShare * static_cast<double>(rows[i].tokens());
  }
  run.steady_steps = static_cast<int64_t>(rows.size()) - 1;
  run.memory = std::make_shared<const device::FoldedTrace>(device::Chain(traces));
  return run;
}

}  // namespace

absl::StatusOr<PlannedRun> PlanRun(const Workload& workload, const TrainConfig& config,
                                   const device::DeviceProfile& profile) {
  if (workload.sequences.layout == SequenceLayout::kPadded) {
    return PlanPaddedRun(workload, config, profile);
  }
  auto trace = FoldedFor(workload, config, profile);
  if (!trace.ok()) return trace.status();
  PlannedRun run;
  run.memory = *trace;
  TrainConfig step = config;  // saving is no part of it
  step.zero.gather_16bit_weights_on_model_save = false;
  trace = FoldedFor(workload, step, profile);
  if (!trace.ok()) return trace.status();
  run.time = ClockOf(**trace, workload, config, profile);
  run.tokens_per_step =
      static_cast<double>(config.micro_batch * config.grad_accum * workload.seq_len);
  return run;
}

}  // namespace hbmtune::predict

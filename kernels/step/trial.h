#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/lowering/fused.h"
#include "kernels/step/data.h"

namespace hbmtune::step {

// One trial: a few optimizer steps of one train config, on the host device, on one rank.
struct TrialRequest {
  Workload workload;
  TrainConfig config;
  int64_t memory_bytes = 0;  // hard budget of device memory
  // Steps before timing starts; at least the first step is never timed.
  int64_t warmup_steps = 1;
  // Timed: at least min_steps, then on until the budget is spent or max_steps were run.
  int64_t min_steps = 1;
  int64_t max_steps = 8;
  double step_budget_seconds = 0;
  uint64_t seed = 0;
  int64_t threads = 0;  // 0: all cores
  int64_t rank = 0;
  std::string rendezvous_path;
  double copy_bytes_per_second = 0;  // of the link to pinned memory, 0 for memcpy's
  bool poison = false;               // freed memory becomes NaN's
  lowering::OptimizerSettings optimizer;
  std::shared_ptr<DataSource> data;  // null: synthetic tokens
};

struct StepReport {
  int64_t index = 0;  // from 0, warm-up included
  double seconds = 0;
  double loss = 0;
  double grad_norm = 0;
  bool overflow = false;  // skipped
  std::string overflow_in;  // which tensor overflowed, of which layer, in which step: a sentence
  int64_t promoted = 0;     // parameters that have fp32 master and moments from here on (promotion)
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t peak_allocated_bytes = 0;
  int64_t peak_reserved_bytes = 0;
};

struct TrialEvents {
  // The device is open, nothing is allocated.
  std::function<void(int64_t capacity_bytes)> on_started;
  std::function<void(const StepReport&)> on_step;
  // Set from anywhere: the trial ends at the next operation, as CANCELLED.
  const std::atomic<bool>* cancel = nullptr;
};

// Never throws for what a trial can run into: out of memory, numbers that are not finite, a lost
// rank, a config that does not fit the workload, and cancelling are outcomes, each with a sentence.
Measurement RunTrial(const TrialRequest& request, const TrialEvents& events = {});

}  // namespace hbmtune::step

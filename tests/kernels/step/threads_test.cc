// All that runs in threads of the step: streams of copies and collectives, and Gloo's own loop. Few
// and small, so that ThreadSanitizer gets through; the results are held to those without streams.

#include <gtest/gtest.h>

#include "tests/kernels/lowering/small_models.h"
#include "tests/kernels/lowering/step_run.h"
#include "tests/kernels/step/rank_processes.h"

namespace hbmtune::testing {
namespace {

std::map<std::string, std::string> Train(const TrainConfig& config) {
  Workload workload = SmallWorkload("llama");
  workload.model.layers = 6;
  workload.seq_len = 64;  // so that activations are over the size that goes away
  StepRun run(lowering::LowerFused(workload, config), true, {.memory_bytes = 64 << 20});
  run.Start(workload);
  for (int i = 0; i < 3; ++i) run.Step();
  return run.Bits();
}

TEST(StreamThreads, OffloadedStateAndActivations) {
  TrainConfig config;
  config.micro_batch = 4;
  config.param_dtype = config.compute_dtype = Dtype::kBf16;
  config.master_weights = true;
  const auto none = Train(config);
  config.offload.activations = ActivationOffload::kLayers;
  for (OptimizerOffload optimizer : {OptimizerOffload::kStream, OptimizerOffload::kCpuAdam}) {
    for (const bool double_buffer : {true, false}) {
      config.offload.optimizer = optimizer;
      config.offload.double_buffer = double_buffer;
      const auto away = Train(config);
      for (const auto& [name, bits] : none) EXPECT_TRUE(away.at(name) == bits) << name;
    }
  }
}

TEST(StreamThreads, OverlappedCollectives) {
  Job job = MakeJob("llama", 2);
  const auto plain = RunRanks(job);
  job.config.zero.overlap_comm = true;
  job.config.zero.reduce_bucket_size = job.config.zero.allgather_bucket_size = 1500;
  job.config.zero.prefetch_bucket_size = 4000;
  for (int64_t stage : {0, 1, 2, 3}) {
    job.config.zero.stage = stage;
    job.config.zero.reduce_scatter = stage != 2;
    ExpectSame(plain, RunRanks(job), "stage " + std::to_string(stage));
  }
}

TEST(StreamThreads, OverlappedCollectivesBesideOffload) {
  Job job = MakeJob("llama", 2);
  const auto plain = RunRanks(job);
  job.config.zero.stage = 3;
  job.config.zero.overlap_comm = true;
  job.config.checkpoint.every = 1;
  job.config.offload.activations = ActivationOffload::kLayers;
  for (OptimizerOffload optimizer : {OptimizerOffload::kStream, OptimizerOffload::kCpuAdam}) {
    job.config.offload.optimizer = optimizer;
    ExpectSame(plain, RunRanks(job), std::string(Name(optimizer)));
  }
}

}  // namespace
}  // namespace hbmtune::testing

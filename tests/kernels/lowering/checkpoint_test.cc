// Recomputation changes memory, never a bit of the result.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/model/presets.h"
#include "tests/kernels/lowering/step_run.h"
#include "tests/kernels/lowering/small_models.h"

namespace hbmtune::testing {
namespace {

struct Outcome {
  std::map<std::string, std::string> bits;
  std::vector<double> losses;
  step::MemoryPeaks peaks;
  int matmuls = 0;  // in the steady step
};

Outcome Train(const Workload& workload, const TrainConfig& config) {
  StepRun run(lowering::LowerFused(workload, config, {}));
  run.Start(workload);
  Outcome outcome;
  for (int i = 0; i < 3; ++i) outcome.losses.push_back(run.Step());
  outcome.bits = run.Bits();
  outcome.peaks = run.executor().Peaks();
  const Program& program = run.program();
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    const auto* instruction = std::get_if<Run>(&program.code[i]);
    outcome.matmuls += instruction != nullptr && instruction->op->name == "linear";
  }
  return outcome;
}

TrainConfig Config(CheckpointConfig checkpoint = {}) {
  TrainConfig config;
  config.micro_batch = 2;
  config.grad_accum = 2;
  config.checkpoint = checkpoint;
  return config;
}

void ExpectSame(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  for (const auto& [name, bits] : a.bits) EXPECT_TRUE(bits == b.bits.at(name)) << what << name;
}

std::string Describe(const CheckpointConfig& c) {
  return "every " + std::to_string(c.every) + ", attention " + std::to_string(c.attention) +
         ", mlp " + std::to_string(c.mlp) + (c.keep_inputs ? ", inputs kept: " : ": ");
}

class Checkpointing : public ::testing::TestWithParam<const char*> {};

TEST_P(Checkpointing, AnyWayIsBitwiseNone) {
  const Workload workload = SmallWorkload(GetParam());
  const Outcome none = Train(workload, Config());
  std::vector<CheckpointConfig> ways;
  for (int64_t every : {1, 2, 3, 5, 8}) ways.push_back({.every = every});
  if (!workload.model.parallel_block) {
    for (bool keep : {true, false}) {
      ways.push_back({.attention = 4, .mlp = 6, .keep_inputs = keep});
      ways.push_back({.attention = 2, .mlp = 0, .keep_inputs = keep});
      ways.push_back({.attention = 0, .mlp = 3, .keep_inputs = keep});
      ways.push_back({.attention = 1, .mlp = 1, .keep_inputs = keep});
    }
  }
  for (const CheckpointConfig& way : ways) {
    const Outcome recomputed = Train(workload, Config(way));
    ExpectSame(none, recomputed, Describe(way));
    if (way.every < workload.model.layers) {  // a single segment saves nothing
      EXPECT_LT(recomputed.peaks.allocated_bytes, none.peaks.allocated_bytes) << Describe(way);
    }
    EXPECT_GT(recomputed.matmuls, none.matmuls) << Describe(way);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Checkpointing,
                         ::testing::Values("llama", "falcon", "gpt2", "gpt2_dropout",
                                           "llama_lora", "llama_packed", "gpt2_dropout_packed"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CheckpointMemory, KeepsOnlyTheInputsOfTheSegments) {
  const Workload workload = SmallWorkload("llama");
  const Outcome every = Train(workload, Config({.every = 1}));
  const int64_t stream = 2 * workload.seq_len * workload.model.hidden * 4;
  int64_t checkpoints = 0;
  for (const CategoryBytes& owner : every.peaks.breakdown) {
    if (owner.category == Category::kCheckpoints) checkpoints = owner.bytes;
  }
  // The first input is the embedding's, the last output the final norm's; blocks round to 512.
  EXPECT_GE(checkpoints, (workload.model.layers - 1) * stream);
  EXPECT_LE(checkpoints, (workload.model.layers + 1) * stream);
}

TEST(CheckpointMemory, InputsThatAreNotKeptSaveMore) {
  const Workload workload = SmallWorkload("llama");
  const Outcome kept = Train(workload, Config({.attention = 4, .mlp = 4, .keep_inputs = true}));
  const Outcome made = Train(workload, Config({.attention = 4, .mlp = 4, .keep_inputs = false}));
  EXPECT_LT(made.peaks.allocated_bytes, kept.peaks.allocated_bytes);
  EXPECT_GT(made.matmuls, kept.matmuls);
}

TEST(CheckpointCost, RecomputesExactlyWhatWasDropped) {
  const Workload workload = SmallWorkload("llama");
  const Outcome none = Train(workload, Config());
  const Outcome all = Train(workload, Config({.every = 1}));
  // Of the 7 products of a layer, all but the last are made again, in each of 2 micro-batches.
  EXPECT_EQ(all.matmuls - none.matmuls, 6 * workload.model.layers * 2);
}

}  // namespace
}  // namespace hbmtune::testing

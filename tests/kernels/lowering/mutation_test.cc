// Breaks a Program on purpose, one instruction at a time: every free stands right after the last
// use of its storage, and every recomputation is needed.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/program/print.h"
#include "tests/kernels/lowering/moved_free.h"
#include "tests/kernels/lowering/small_models.h"
#include "tests/kernels/lowering/step_run.h"

namespace hbmtune::testing {
namespace {

Workload TwoLayers(const std::string& model) {
  Workload workload = SmallWorkload(model);
  workload.model.layers = 2;
  return workload;
}

Program Small(const Workload& workload, CheckpointConfig checkpoint) {
  TrainConfig config;
  config.micro_batch = 2;
  config.grad_accum = 2;
  config.checkpoint = checkpoint;
  config.loss_chunk_tokens = 20;
  return lowering::LowerFused(workload, config);
}

Program Without(Program program, size_t i) {
  program.code.erase(program.code.begin() + static_cast<long>(i));
  return program;
}

struct Case {
  const char* model;
  CheckpointConfig checkpoint;
};

class Mutation : public ::testing::TestWithParam<Case> {};

TEST_P(Mutation, MovingAnyFreeOneOpEarlierFails) {
  const Workload workload = TwoLayers(GetParam().model);
  const Program program = Small(workload, GetParam().checkpoint);
  const auto truth = TwoSteps(program, workload);
  ASSERT_TRUE(truth.has_value());
  const std::vector<size_t> frees = SteadyFrees(program);
  for (size_t i : frees) {
    const size_t before = OpBefore(program, i);
    EXPECT_NE(TwoSteps(Moved(program, i, before), workload), truth)
        << i << " " << Describe(program, program.code[i]) << " after "
        << Describe(program, program.code[before]);
  }
  EXPECT_GT(frees.size(), 50u);
}

TEST_P(Mutation, DroppingAnyOpOfTheBackwardPassFails) {
  const Workload workload = TwoLayers(GetParam().model);
  const Program program = Small(workload, GetParam().checkpoint);
  const auto truth = TwoSteps(program, workload);
  PhaseKind phase = PhaseKind::kSetup;
  int recomputed = 0;
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    if (const auto* begin = std::get_if<Phase>(&program.code[i])) phase = begin->kind;
    const auto* run = std::get_if<hbmtune::Run>(&program.code[i]);
    if (phase != PhaseKind::kBackward || run == nullptr) continue;
    recomputed += run->op->name == "linear";
    EXPECT_NE(TwoSteps(Without(program, i), workload), truth)
        << i << " " << Describe(program, program.code[i]);
  }
  if (GetParam().checkpoint.every > 0) {
    EXPECT_GE(recomputed, 2 * 2 * 3);  // layers, micro-batches, products made again
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, Mutation,
    ::testing::Values(Case{"llama", {}}, Case{"llama", {.every = 1}},
                      Case{"llama", {.attention = 2, .mlp = 1, .keep_inputs = false}},
                      Case{"falcon", {.every = 2}}, Case{"gpt2_dropout", {.every = 1}},
                      Case{"llama_lora", {}}, Case{"llama_packed", {.every = 1}},
                      Case{"gpt2_packed", {.attention = 1, .keep_inputs = false}}),
    [](const auto& info) {
      return std::string(info.param.model) + "_" + std::to_string(info.index);
    });

}  // namespace
}  // namespace hbmtune::testing

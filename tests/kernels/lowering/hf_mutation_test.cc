// Breaks the Programs of Transformers on purpose. They free where Python lets go, which is often
// later than the last use: those frees are tests/tuner/verify's. Here each is moved ahead of that
// use, and the step must fail on the host.

#include <gtest/gtest.h>

#include <iostream>
#include <optional>

#include "kernels/lowering/hf.h"
#include "kernels/program/print.h"
#include "tests/kernels/lowering/moved_free.h"
#include "tests/kernels/lowering/small_models.h"
#include "tests/kernels/lowering/step_run.h"

namespace hbmtune::testing {
namespace {

struct Case {
  const char* model;
  Framework framework;
  bool checkpoint = false, reentrant = false;
  int64_t stage = -1;  // of DeepSpeed, in bf16
  bool on_host = false;  // checkpoints of Transformers, the optimizer of DeepSpeed
  Dtype autocast = Dtype::kF32;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " " << Name(c.framework) << (c.checkpoint ? " checkpointed" : "")
       << (c.reentrant ? " (reentrant)" : "");
  if (c.stage >= 0) *out << " stage " << c.stage;
  if (c.on_host) *out << " on the host";
  if (c.autocast != Dtype::kF32) *out << " autocast " << Name(c.autocast);
}

Workload WorkloadOf(const Case& c) {
  Workload workload = SmallWorkload(c.model);
  // As small as it gets: Transformers' products are plain loops on the host.
  workload.seq_len = 4;
  workload.model.layers = 2;
  workload.model.hidden = workload.model.ffn = 8;
  workload.model.head_dim = 2;
  workload.model.vocab = 16;
  workload.framework = c.framework;
  return workload;
}

TrainConfig ConfigOf(const Case& c) {
  TrainConfig config;
  config.micro_batch = 2;
  config.grad_accum = 2;
  config.checkpoint.every = c.checkpoint ? 1 : 0;
  config.checkpoint.reentrant = c.reentrant;
  config.compute_dtype = c.autocast;
  if (c.stage < 0) {
    if (c.on_host) config.offload.activations = ActivationOffload::kCheckpoints;
    return config;
  }
  config.param_dtype = config.compute_dtype = Dtype::kBf16;
  config.master_weights = true;
  config.zero.stage = c.stage;
  config.zero.reduce_bucket_size = 200;
  config.zero.param_persistence_threshold = 10;
  config.zero.overlap_comm = false;
  config.zero.max_reuse_distance = config.zero.prefetch_bucket_size = 0;
  if (c.on_host) config.offload.optimizer = OptimizerOffload::kCpuAdam;
  return config;
}

// The op of the steady step that uses the storage last before it is freed.
std::optional<size_t> LastUse(const Program& program, size_t free) {
  const StorageId storage = std::get<Free>(program.code[free]).storage;
  for (size_t p = free; p-- > program.steady_step;) {
    if (Uses(program, program.code[p], storage)) return p;
    const auto* allocate = std::get_if<Allocate>(&program.code[p]);
    if (allocate != nullptr && allocate->storage == storage) break;
  }
  return std::nullopt;
}

class HfMutation : public ::testing::TestWithParam<Case> {};

TEST_P(HfMutation, MovingAnyFreeAheadOfTheLastUseFails) {
  const Workload workload = WorkloadOf(GetParam());
  const Program program = lowering::LowerHf(workload, ConfigOf(GetParam()));
  const auto truth = TwoSteps(program, workload);
  ASSERT_TRUE(truth.has_value());
  int moved = 0, by_one_op = 0, unused = 0;
  for (size_t i : SteadyFrees(program)) {
    const auto use = LastUse(program, i);
    if (!use) {
      ++unused;
      continue;
    }
    ++moved;
    by_one_op += *use == OpBefore(program, i);
    EXPECT_NE(TwoSteps(Moved(program, i, *use), workload), truth)
        << i << " " << Describe(program, program.code[i]) << " after "
        << Describe(program, program.code[*use]);
  }
  std::cout << moved << " frees moved, " << by_one_op << " of them by one op; " << unused
            << " without a use before them in the step\n";
  EXPECT_GT(moved, 50);
}

using enum Framework;

INSTANTIATE_TEST_SUITE_P(
    Programs, HfMutation,
    ::testing::Values(Case{"llama", kHfSdpa}, Case{"llama", kHfEager, true},
                      Case{"llama", kHfSdpa, true, true},
                      Case{"llama", kHfSdpa, true, false, -1, true},
                      Case{"llama_lora", kHfSdpa, false, false, -1, false, Dtype::kBf16},
                      Case{"gpt2_dropout", kHfEager},
                      Case{"gpt2_dropout", kHfSdpa, true, true, -1, false, Dtype::kF16},
                      Case{"falcon", kHfSdpa}, Case{"falcon", kHfEager, true},
                      Case{"llama", kHfSdpaDdp}, Case{"llama", kHfSdpaDeepspeed, false, false, 0},
                      Case{"llama", kHfSdpaDeepspeed, false, false, 1},
                      Case{"gpt2_dropout", kHfSdpaDeepspeed, true, false, 2},
                      Case{"llama", kHfSdpaDeepspeed, false, false, 2, true},
                      Case{"llama_lora", kHfSdpaDeepspeed, true, true, 3},
                      Case{"falcon", kHfSdpaDeepspeed, false, false, 3}));

}  // namespace
}  // namespace hbmtune::testing

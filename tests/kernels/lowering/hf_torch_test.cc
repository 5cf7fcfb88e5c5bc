#include <gtest/gtest.h>

#include "kernels/lowering/hf.h"
#include "tests/kernels/lowering/step_run.h"

// The Programs of Transformers really run on the host, freed memory poisoned: the first step's
// gradients and the losses over steps of AdamW are those of PyTorch.
namespace hbmtune::testing {
namespace {

// The first step's gradients, which are gone after it, by AdamW's first moment: a tenth of them.
void ExpectGradientsOfTorch(StepRun& run, const Recorded& recorded) {
  size_t compared = 0;
  for (const NamedView& named : run.program().parameters) {
    if (!recorded.file.Has("fp64/grad/" + named.name)) continue;
    std::vector<double> gradient = run.Values(named.name + ".exp_avg");
    for (double& x : gradient) x /= 0.1;
    const auto exact = recorded.file.Values("fp64/grad/" + named.name);
    EXPECT_LE(RelativeError(gradient, exact), 1e-5) << named.name;
    ++compared;
  }
  EXPECT_GE(compared, 4u);
}

struct HfCase {
  const char* model;
  Framework framework;
  bool checkpoint = false;
  bool reentrant = false;
  bool on_host = false;  // checkpointed inputs
};

void PrintTo(const HfCase& c, std::ostream* out) {
  *out << c.model << " " << Name(c.framework) << (c.checkpoint ? " checkpointed" : "")
       << (c.reentrant ? " (reentrant)" : "") << (c.on_host ? " on the host" : "");
}

class HfOnHost : public ::testing::TestWithParam<HfCase> {};

TEST_P(HfOnHost, GradientsAndLossesAreThoseOfTorch) {
  const HfCase& c = GetParam();
  Recorded recorded(c.model);
  Workload workload = recorded.workload;
  workload.framework = c.framework;
  workload.grad_clip = 0;
  TrainConfig config;
  config.micro_batch = recorded.config.micro_batch;
  config.checkpoint.every = c.checkpoint ? 1 : 0;
  config.checkpoint.reentrant = c.reentrant;
  if (c.on_host) config.offload.activations = ActivationOffload::kCheckpoints;
  lowering::HfOptions options;
  options.optimizer = recorded.options.optimizer;
  options.trainer_groups = false;
  StepRun run(lowering::LowerHf(workload, config, options));
  run.Start(recorded);
  const std::vector<double> losses = recorded.file.Values("fp64/losses");
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_NEAR(run.Step(), losses[step], 1e-5 * losses[step]) << "step " << step;
    if (step == 0) ExpectGradientsOfTorch(run, recorded);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, HfOnHost,
    ::testing::Values(HfCase{"llama", Framework::kHfSdpa}, HfCase{"llama", Framework::kHfEager},
                      HfCase{"llama", Framework::kHfSdpa, true},
                      HfCase{"llama", Framework::kHfEager, true, true},
                      HfCase{"llama_lora", Framework::kHfSdpa},
                      HfCase{"mistral", Framework::kHfEager}, HfCase{"qwen2", Framework::kHfSdpa},
                      HfCase{"gpt2", Framework::kHfSdpa}, HfCase{"gpt2", Framework::kHfEager},
                      HfCase{"falcon", Framework::kHfSdpa}, HfCase{"falcon", Framework::kHfEager},
                      HfCase{"falcon_new", Framework::kHfEager, true},
                      HfCase{"qwen2", Framework::kHfEager, true, false, true},
                      HfCase{"gpt2", Framework::kHfEager, true, true, true},
                      HfCase{"gpt2", Framework::kHfEager, true, false, true}));

// DDP on one rank changes no number, whether gradients lie beside their buckets or in them. Its
// first section holds two steps, because the second makes the buckets anew.
class DdpOnHost : public ::testing::TestWithParam<bool> {};

TEST_P(DdpOnHost, LossesAreThoseOfTorch) {
  Recorded recorded("llama");
  Workload workload = recorded.workload;
  workload.framework = Framework::kHfSdpaDdp;
  workload.grad_clip = 0;
  TrainConfig config;
  config.micro_batch = recorded.config.micro_batch;
  config.ddp.gradient_as_bucket_view = GetParam();
  lowering::HfOptions options;
  options.optimizer = recorded.options.optimizer;
  options.trainer_groups = false;
  StepRun run(lowering::LowerHf(workload, config, options));
  run.Start(recorded);
  const std::vector<double> losses = recorded.file.Values("fp64/losses");
  for (size_t step = 1; step < 5; ++step) {
    EXPECT_NEAR(run.Step(), losses[step], 1e-5 * losses[step]) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(CopiesAndViews, DdpOnHost, ::testing::Bool());

struct ZeroCase {
  const char* model;
  int64_t stage;
  bool checkpoint = false, reentrant = false, offload = false;
  bool ahead = false;  // stage 3: weights prefetched on their stream, kept for their next use
};

void PrintTo(const ZeroCase& c, std::ostream* out) {
  *out << c.model << " stage " << c.stage << (c.checkpoint ? " checkpointed" : "")
       << (c.reentrant ? " (reentrant)" : "") << (c.offload ? " cpu_adam" : "");
}

class ZeroOnHost : public ::testing::TestWithParam<ZeroCase> {};

// DeepSpeed on one rank, in bf16 with fp32 masters: losses are PyTorch's but for rounding.
TEST_P(ZeroOnHost, LossesAreNearTorchs) {
  const ZeroCase& c = GetParam();
  Recorded recorded(c.model);
  Workload workload = recorded.workload;
  workload.framework = Framework::kHfSdpaDeepspeed;
  workload.grad_clip = 0;
  TrainConfig config;
  config.micro_batch = recorded.config.micro_batch;
  config.param_dtype = config.compute_dtype = Dtype::kBf16;
  config.master_weights = true;
  config.checkpoint.every = c.checkpoint ? 1 : 0;
  config.checkpoint.reentrant = c.reentrant;
  config.zero.stage = c.stage;
  config.zero.reduce_bucket_size = 2000;
  config.zero.param_persistence_threshold = 100;
  config.zero.overlap_comm = c.ahead;
  if (!c.ahead) config.zero.max_reuse_distance = config.zero.prefetch_bucket_size = 0;
  if (c.offload) config.offload.optimizer = OptimizerOffload::kCpuAdam;
  lowering::HfOptions options;
  options.optimizer = recorded.options.optimizer;
  options.trainer_groups = false;
  // Poison does not wait for another stream that still reads what was freed.
  StepRun run(lowering::LowerHf(workload, config, options), !config.zero.overlap_comm);
  run.Start(recorded);
  for (const NamedView& named : run.program().parameters) {
    const std::string master = named.name + ".master";
    if (run.Has(master)) run.SetValues(master, recorded.file.Values("param/" + named.name));
  }
  const std::vector<double> losses = recorded.file.Values("fp64/losses");
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_NEAR(run.Step(), losses[step], 0.02 * losses[step]) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, ZeroOnHost,
    ::testing::Values(ZeroCase{"llama", 0}, ZeroCase{"gpt2", 0, true}, ZeroCase{"llama_lora", 0},
                      ZeroCase{"llama", 1}, ZeroCase{"llama", 2, true},
                      ZeroCase{"llama", 2, false, false, true}, ZeroCase{"falcon", 2, true, true},
                      ZeroCase{"llama_lora", 2}, ZeroCase{"llama", 3},
                      ZeroCase{"llama", 3, false, false, false, true},
                      ZeroCase{"qwen2", 3, true}, ZeroCase{"qwen2", 3, true, true, false, true},
                      ZeroCase{"llama", 3, false, false, true}, ZeroCase{"llama_lora", 3, true},
                      ZeroCase{"llama_lora", 3, true, true}, ZeroCase{"gpt2", 3},
                      ZeroCase{"gpt2", 3, true, true, false, true}, ZeroCase{"falcon", 3},
                      ZeroCase{"falcon", 3, true}, ZeroCase{"falcon_new", 3, true, true, true},
                      ZeroCase{"falcon_new", 3, false, false, false, true}));

}  // namespace
}  // namespace hbmtune::testing

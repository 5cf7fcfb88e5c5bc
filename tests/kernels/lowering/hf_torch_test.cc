#include <gtest/gtest.h>

#include "kernels/lowering/hf.h"
#include "tests/kernels/lowering/step_run.h"

// The Programs of Transformers really run on the host, freed memory poisoned: losses over steps of
// AdamW are those of PyTorch.
namespace hbmtune::testing {
namespace {

struct HfCase {
  const char* model;
  Framework framework;
  bool checkpoint = false;
  bool reentrant = false;
};

void PrintTo(const HfCase& c, std::ostream* out) {
  *out << c.model << " " << Name(c.framework) << (c.checkpoint ? " checkpointed" : "")
       << (c.reentrant ? " (reentrant)" : "");
}

class HfOnHost : public ::testing::TestWithParam<HfCase> {};

TEST_P(HfOnHost, LossesAreThoseOfTorch) {
  const HfCase& c = GetParam();
  Recorded recorded(c.model);
  Workload workload = recorded.workload;
  workload.framework = c.framework;
  workload.grad_clip = 0;
  TrainConfig config;
  config.micro_batch = recorded.config.micro_batch;
  config.checkpoint.every = c.checkpoint ? 1 : 0;
  config.checkpoint.reentrant = c.reentrant;
  lowering::HfOptions options;
  options.optimizer = recorded.options.optimizer;
  options.trainer_groups = false;
  StepRun run(lowering::LowerHf(workload, config, options));
  run.Start(recorded);
  const std::vector<double> losses = recorded.file.Values("fp64/losses");
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_NEAR(run.Step(), losses[step], 1e-5 * losses[step]) << "step " << step;
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
                      HfCase{"falcon_new", Framework::kHfEager, true}));

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

}  // namespace
}  // namespace hbmtune::testing

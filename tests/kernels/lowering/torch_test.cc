// The whole step against numbers recorded from PyTorch and Transformers (tests/reference).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/lowering/step_run.h"

namespace hbmtune::testing {
namespace {

struct Case {
  std::string model;
  Dtype dtype;
  AttentionKind attention = AttentionKind::kTiled;
  int64_t chunk = 0;
};

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.model + "_" + std::string(Name(info.param.dtype));
  if (info.param.attention == AttentionKind::kMaterialised) name += "_materialised";
  if (info.param.chunk > 0) name += "_chunked";
  return name;
}

class AgainstTorch : public ::testing::TestWithParam<Case> {
 protected:
  AgainstTorch() : recorded_(GetParam().model) {
    recorded_.config.param_dtype = recorded_.config.compute_dtype =
        recorded_.config.optimizer_state_dtype = GetParam().dtype;
    recorded_.config.attention = GetParam().attention;
    recorded_.config.loss_chunk_tokens = GetParam().chunk;
  }

  StepRun MakeRun() {
    return StepRun(
        lowering::LowerFused(recorded_.workload, recorded_.config, recorded_.options));
  }

  // Sums in fp64 agree to rounding; fp32 stays within 1e-5.
  double tolerance() const { return GetParam().dtype == Dtype::kF64 ? 1e-12 : 1e-5; }

  Recorded recorded_;
};

TEST_P(AgainstTorch, LossLogitsAndEveryGradientOfTheFirstStep) {
  StepRun run = MakeRun();
  run.Start(recorded_);
  const double loss = run.Step();
  const double reference = recorded_.file.Values("fp64/loss")[0];
  EXPECT_NEAR(loss, reference, tolerance() * reference);
  EXPECT_LT(RelativeError(run.Values("logits"), recorded_.file.Values("fp64/logits")),
            tolerance());
  int compared = 0;
  for (const NamedView& named : run.program().parameters) {
    const std::string reference_name = "fp64/grad/" + named.name;
    if (!recorded_.file.Has(reference_name)) continue;
    ++compared;
    EXPECT_LT(RelativeError(run.Values(named.name + ".grad"),
                            recorded_.file.Values(reference_name)),
              tolerance())
        << named.name;
  }
  const auto trainable = nlohmann::json::parse(recorded_.file.Metadata("trainable"));
  EXPECT_EQ(compared, static_cast<int>(trainable.size()));
}

TEST_P(AgainstTorch, LossesOfTwentyAdamwSteps) {
  StepRun run = MakeRun();
  run.Start(recorded_);
  std::vector<double> losses;
  for (int i = 0; i <= 20; ++i) losses.push_back(run.Step());
  const std::vector<double> reference = recorded_.file.Values("fp64/losses");
  const double tolerance = GetParam().dtype == Dtype::kF64 ? 1e-10 : 1e-4;
  for (int i = 0; i <= 20; ++i) {
    EXPECT_NEAR(losses[i], reference[i], tolerance * reference[i]) << "step " << i;
  }
  EXPECT_LT(losses[20], losses[0]);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* model : {"llama", "mistral", "qwen2", "falcon", "falcon_new", "gpt2"}) {
    for (const char* suffix : {"", "_lora"}) {
      for (Dtype dtype : {Dtype::kF64, Dtype::kF32}) {
        cases.push_back({std::string(model) + suffix, dtype});
      }
    }
    cases.push_back({model, Dtype::kF32, AttentionKind::kMaterialised, 5});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstTorch, ::testing::ValuesIn(Cases()), CaseName);

}  // namespace
}  // namespace hbmtune::testing

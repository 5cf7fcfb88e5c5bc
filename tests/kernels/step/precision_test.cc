#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "kernels/step/not_finite.h"
#include "kernels/step/trial.h"
#include "tests/kernels/lowering/small_models.h"
#include "tests/kernels/lowering/step_run.h"

namespace hbmtune::testing {
namespace {

using ::testing::HasSubstr;

// --- loss scaling -----------------------------------------------------------------------------

TrainConfig Fp16(double scale) {
  TrainConfig config;
  config.micro_batch = 2;
  config.compute_dtype = Dtype::kF16;
  config.loss_scale = {.initial = scale, .window = 4, .hysteresis = 1, .min = 1};
  return config;
}

TEST(LossScale, AnOverflowSkipsTheStepHalvesTheScaleAndRecovers) {
  const Workload workload = SmallWorkload("llama");
  StepRun run(lowering::LowerFused(workload, Fp16(std::ldexp(1.0, 40))));
  run.Start(workload);
  auto before = run.Bits();
  run.Step();
  EXPECT_EQ(run.executor().scalar(ScalarSlot::kFoundInf), 1.0);
  EXPECT_EQ(run.Values("loss_scale")[0], std::ldexp(1.0, 39));
  EXPECT_EQ(run.Values("step")[0], 0);
  for (const NamedView& named : run.program().parameters) {
    EXPECT_TRUE(run.Bits().at(named.name) == before.at(named.name)) << named.name;
  }
  int skipped = 1;
  while (run.Step(), run.executor().scalar(ScalarSlot::kFoundInf) == 1.0) ++skipped;
  EXPECT_LT(skipped, 35);
  const double scale = run.Values("loss_scale")[0];
  EXPECT_EQ(scale, std::ldexp(1.0, 40 - skipped));
  EXPECT_EQ(run.Values("step")[0], 1);
  run.Step();
  run.Step();
  run.Step();
  EXPECT_EQ(run.Values("loss_scale")[0], 2 * scale);  // the window of 4 good steps is over
}

TEST(LossScale, WaitsForTheHysteresisAndKeepsTheFloor) {
  const Workload workload = SmallWorkload("llama");
  TrainConfig config = Fp16(std::ldexp(1.0, 40));
  config.loss_scale.hysteresis = 2;
  config.loss_scale.min = std::ldexp(1.0, 39);
  StepRun run(lowering::LowerFused(workload, config));
  run.Start(workload);
  run.Step();
  EXPECT_EQ(run.Values("loss_scale")[0], std::ldexp(1.0, 40));
  run.Step();
  EXPECT_EQ(run.Values("loss_scale")[0], std::ldexp(1.0, 39));
  run.Step();
  EXPECT_EQ(run.Values("loss_scale")[0], std::ldexp(1.0, 39));
}

TEST(LossScale, ItsScaleDoesNotChangeTheUpdate) {
  const Workload workload = SmallWorkload("llama");
  std::vector<double> losses[2];
  for (int i = 0; i < 2; ++i) {
    StepRun run(lowering::LowerFused(workload, Fp16(i == 0 ? 256 : 4096)));
    run.Start(workload);
    for (int step = 0; step < 3; ++step) losses[i].push_back(run.Step());
  }
  for (int step = 0; step < 3; ++step) EXPECT_NEAR(losses[0][step], losses[1][step], 1e-3);
}

// --- numbers that are not finite --------------------------------------------------------------

TEST(NotFinite, NamesTheWeightItsLayerAndTheStep) {
  const Workload workload = SmallWorkload("llama");
  TrainConfig config;
  StepRun run(lowering::LowerFused(workload, config));
  run.Start(workload);
  run.Step();
  const std::string name = "model.layers.3.mlp.up_proj.weight";
  auto values = run.Values(name);
  values[5] = std::nan("");
  run.SetValues(name, values);
  run.Step();
  EXPECT_EQ(step::DescribeNotFinite(run.program(), run.executor(), workload, 1),
            "weight model.layers.3.mlp.up_proj.weight (layer 3) is not finite in step 1");
  EXPECT_EQ(run.executor().scalar(ScalarSlot::kFoundInf), 1.0);
}

TEST(NotFinite, NamesTheGradientWhereTheWeightsAreFinite) {
  const Workload workload = SmallWorkload("llama");
  TrainConfig config;
  StepRun run(lowering::LowerFused(workload, config));
  run.Start(workload);
  auto values = run.Values("model.layers.5.self_attn.v_proj.weight");
  for (double& x : values) x = 3e38;  // finite, but the products are not
  run.SetValues("model.layers.5.self_attn.v_proj.weight", values);
  run.Step();
  EXPECT_THAT(step::DescribeNotFinite(run.program(), run.executor(), workload, 0),
              HasSubstr("is not finite in step 0"));
}

TEST(NotFinite, EndsATrialWithASentence) {
  step::TrialRequest request;
  request.workload = SmallWorkload("llama");
  request.memory_bytes = 64 << 20;
  request.threads = 1;
  request.max_steps = 50;
  request.min_steps = 50;
  request.optimizer.lr = 1e30;
  const Measurement measurement = step::RunTrial(request);
  EXPECT_EQ(measurement.outcome, Outcome::kNotFinite);
  EXPECT_THAT(measurement.message, HasSubstr("is not finite in step"));
}

// --- learning ---------------------------------------------------------------------------------

TEST(Learning, OverfitsOneBatch) {
  for (const char* model : {"llama", "falcon", "gpt2"}) {
    step::TrialRequest request;
    request.workload = SmallWorkload(model);
    request.memory_bytes = 64 << 20;
    request.threads = 1;
    request.config.micro_batch = 2;
    request.min_steps = request.max_steps = 250;
    request.optimizer.lr = 5e-3;
    std::vector<int64_t> tokens(32);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i * 37 % 64);
    request.data = step::FixedTokens(tokens, tokens);
    const Measurement measurement = step::RunTrial(request);
    EXPECT_EQ(measurement.outcome, Outcome::kOk) << measurement.message;
    EXPECT_LT(measurement.last_loss, 0.05) << model;
  }
}

double MeanOfLastTen(Dtype compute) {
  std::ifstream file(std::string(HBMTUNE_TEST_DATA) + "/../../LICENSE", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  step::TrialRequest request;
  request.workload = SmallWorkload("llama");
  request.workload.model.vocab = 256;
  request.workload.model.layers = 2;
  request.workload.seq_len = 64;
  request.memory_bytes = 64 << 20;
  request.threads = 1;
  request.config.micro_batch = 4;
  request.config.compute_dtype = compute;
  request.min_steps = request.max_steps = 199;
  request.optimizer.lr = 3e-3;
  request.data = step::TextBytes(text, 1, 0, 256);
  double sum = 0;
  step::TrialEvents events;
  events.on_step = [&](const step::StepReport& report) {
    if (report.index >= 190) sum += report.loss / 10;
  };
  const Measurement measurement = step::RunTrial(request, events);
  EXPECT_EQ(measurement.outcome, Outcome::kOk) << measurement.message;
  EXPECT_LT(measurement.last_loss, 0.7 * measurement.first_loss);
  return sum;
}

TEST(Learning, HalfPrecisionFollowsFp32OnARealText) {
  const double fp32 = MeanOfLastTen(Dtype::kF32);
  EXPECT_NEAR(MeanOfLastTen(Dtype::kF16), fp32, 0.01 * fp32);
  EXPECT_NEAR(MeanOfLastTen(Dtype::kBf16), fp32, 0.02 * fp32);
}

}  // namespace
}  // namespace hbmtune::testing

// Precision level 3: 16-bit weights, of which those with small gradients have fp32 masters.

#include "kernels/step/promotion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/core/float16.h"
#include "kernels/device/host/host_device.h"
#include "kernels/step/gradient_norms.h"
#include "kernels/step/not_finite.h"
#include "kernels/step/trial.h"
#include "kernels/step/trial_program.h"
#include "kernels/step/weights.h"
#include "tests/kernels/lowering/small_models.h"
#include "tests/kernels/lowering/step_run.h"

namespace hbmtune::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kAlways = 1e30;  // a threshold that every norm is under

Workload SmallLlama() {
  Workload workload = SmallWorkload("llama");
  workload.model.layers = 3;
  return workload;
}

TrainConfig PureBf16(double threshold = 0, double hysteresis = 1) {
  TrainConfig config;
  config.micro_batch = 2;
  config.param_dtype = config.compute_dtype = config.optimizer_state_dtype = Dtype::kBf16;
  config.promotion = {threshold, hysteresis};
  return config;
}

std::set<std::string> Everything(const Workload& workload) {
  const std::vector<std::string> names = lowering::TrainedNames(workload);
  return {names.begin(), names.end()};
}

// One executor and the Programs that it goes through; each step on the same tokens, or each on
// others.
class PromotingRun {
 public:
  explicit PromotingRun(const TrainConfig& config, bool other_tokens = false)
      : config_(config),
        program_(workload_, config_, {}),
        device_({.memory_bytes = 64 << 20}),
        executor_(program_.program(), device_, memory::AllocatorConfig{}, {.poison = true}) {
    data_ = step::SyntheticTokens(1, 0, workload_.model.vocab);
    executor_.set_feed([=, this](int64_t* ids, int64_t* labels, int64_t rows, int64_t tokens) {
      if (!other_tokens) data_ = step::SyntheticTokens(1, 0, workload_.model.vocab);
      data_->Fill(ids, labels, rows, tokens);
    });
    executor_.RunSetup();
    step::InitialiseWeights(executor_, program_.program(), workload_, 1);
  }

  double Step() {
    first_ ? executor_.RunFirstStep() : executor_.RunSteadyStep();
    first_ = false;
    program_.AfterStep(executor_);
    return executor_.scalar(ScalarSlot::kLoss).value();
  }

  std::string Bits(const std::string& name) {
    const TensorArg tensor = executor_.Find(name);
    return {tensor.as<char>(), static_cast<size_t>(tensor.bytes())};
  }
  std::vector<double> Values(const std::string& name) {
    const TensorArg tensor = executor_.Find(name);
    std::vector<double> values(tensor.elements());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = tensor.dtype == Dtype::kBf16   ? Widen(tensor.as<Bf16>()[i])
                  : tensor.dtype == Dtype::kI64 ? static_cast<double>(tensor.as<int64_t>()[i])
                                                : tensor.as<float>()[i];
    }
    return values;
  }

  const Program& program() const { return program_.program(); }
  const std::set<std::string>& promoted() const { return program_.promoted(); }
  step::Executor& executor() { return executor_; }
  const Workload& workload() const { return workload_; }

 private:
  Workload workload_ = SmallLlama();
  TrainConfig config_;
  step::TrialProgram program_;
  device::HostDevice device_;
  step::Executor executor_;
  std::unique_ptr<step::DataSource> data_;
  bool first_ = true;
};

TEST(Promotion, HasAHysteresis) {
  const PromotionConfig config{1e-4, 2};
  EXPECT_TRUE(step::Promoted(false, 0.9e-4, config));
  EXPECT_FALSE(step::Promoted(false, 1.1e-4, config));
  EXPECT_TRUE(step::Promoted(true, 1.1e-4, config));
  EXPECT_TRUE(step::Promoted(true, 2e-4, config));
  EXPECT_FALSE(step::Promoted(true, 2.1e-4, config));
}

TEST(Promotion, OfEverythingIsMasterWeights) {
  const Workload workload = SmallLlama();
  lowering::FusedOptions options;
  options.promoted = Everything(workload);
  StepRun promoted(lowering::LowerFused(workload, PureBf16(1e-4), options));
  TrainConfig config = PureBf16();
  config.master_weights = true;
  config.optimizer_state_dtype = Dtype::kF32;
  StepRun masters(lowering::LowerFused(workload, config));
  promoted.Start(workload);
  masters.Start(workload);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(promoted.Step(), masters.Step());
  const auto bits = promoted.Bits();
  for (const auto& [name, expected] : masters.Bits()) {
    EXPECT_TRUE(bits.at(name) == expected) << name;
  }
}

// Where a run was promoted, another one with masters goes on from the same numbers.
TEST(Promotion, GoesOnFromTheNumbersThatWereThere) {
  PromotingRun run(PureBf16(kAlways));
  const Workload& workload = run.workload();
  TrainConfig config = PureBf16();
  config.master_weights = true;
  config.optimizer_state_dtype = Dtype::kF32;
  StepRun masters(lowering::LowerFused(workload, config));
  masters.Start(workload);
  run.Step();
  EXPECT_EQ(run.promoted(), Everything(workload));
  for (const std::string& name : lowering::TrainedNames(workload)) {
    EXPECT_EQ(run.Values(name + ".master"), run.Values(name));
    masters.SetValues(name, run.Values(name));
    for (const char* moment : {".exp_avg", ".exp_avg_sq"}) {
      EXPECT_EQ(run.executor().Find(name + moment).dtype, Dtype::kF32);
      masters.SetValues(name + moment, run.Values(name + moment));
    }
  }
  *masters.executor().Find("step").as<int64_t>() = 1;
  for (int i = 0; i < 3; ++i) {
    masters.set_data(step::SyntheticTokens(1, 0, workload.model.vocab));
    EXPECT_EQ(run.Step(), masters.Step());
  }
  for (const auto& [name, expected] : masters.Bits()) {
    EXPECT_TRUE(run.Bits(name) == expected) << name;
  }
}

// A threshold amid the norms of the first step; those that it separates.
double MiddleNorm() {
  PromotingRun run(PureBf16());
  run.Step();
  std::vector<double> norms;
  for (const auto& gradient : step::GradientNorms(run.executor(), run.workload())) {
    norms.push_back(gradient.norm);
  }
  std::nth_element(norms.begin(), norms.begin() + 10, norms.end());
  return norms[10];
}

TEST(Promotion, FollowsTheNormsUpAndDownAndSoDoesMemory) {
  const double threshold = MiddleNorm();
  PromotingRun run(PureBf16(threshold), true);
  std::set<std::string> before;
  int up = 0, down = 0;
  for (int i = 0; i < 12; ++i) {
    run.Step();
    std::set<std::string> expected;
    for (const auto& gradient : step::GradientNorms(run.executor(), run.workload())) {
      if (gradient.norm < threshold) expected.insert(gradient.parameter.name);
    }
    EXPECT_EQ(run.promoted(), expected) << i;
    for (const std::string& name : expected) up += !before.contains(name);
    for (const std::string& name : before) down += !expected.contains(name);
    before = expected;
    // As much memory as in a run that was so from the beginning, and no storage more.
    lowering::FusedOptions options;
    options.promoted = expected;
    StepRun fresh(lowering::LowerFused(run.workload(), PureBf16(threshold), options));
    fresh.Start(run.workload());
    EXPECT_EQ(run.executor().allocator().allocated_bytes(),
              fresh.executor().allocator().allocated_bytes());
    EXPECT_EQ(run.executor().LiveStorages(), fresh.executor().LiveStorages());
  }
  EXPECT_GT(up, 0);
  EXPECT_GT(down, 0);
}

TEST(Promotion, IsBitwiseTheSameWithAnyCheckpointing) {
  const double threshold = MiddleNorm();
  auto train = [&](const CheckpointConfig& checkpoint) {
    TrainConfig config = PureBf16(threshold);
    config.grad_accum = 2;
    config.checkpoint = checkpoint;
    auto run = std::make_unique<PromotingRun>(config);
    for (int i = 0; i < 4; ++i) run->Step();
    return run;
  };
  const auto none = train({});
  EXPECT_FALSE(none->promoted().empty());
  EXPECT_LT(none->promoted().size(), Everything(none->workload()).size());
  for (const CheckpointConfig& checkpoint :
       {CheckpointConfig{.every = 1}, CheckpointConfig{.every = 2},
        CheckpointConfig{.attention = 2, .mlp = 3, .keep_inputs = false}}) {
    const auto other = train(checkpoint);
    EXPECT_EQ(other->promoted(), none->promoted());
    for (const auto* list : {&none->program().parameters, &none->program().state}) {
      for (const NamedView& named : *list) {
        EXPECT_TRUE(other->Bits(named.name) == none->Bits(named.name)) << named.name;
      }
    }
  }
}

TEST(Promotion, NamesWhatIsNotFinite) {
  PromotingRun run(PureBf16(kAlways));
  run.Step();
  run.executor().Find("model.layers.1.mlp.up_proj.weight.master").as<float>()[3] = std::nanf("");
  EXPECT_EQ(step::StateNotFinite(run.program(), run.executor(), run.workload(), 1),
            "optimizer state model.layers.1.mlp.up_proj.weight.master (layer 1) is not finite in "
            "step 1");
  run.Step();
  EXPECT_EQ(step::DescribeNotFinite(run.program(), run.executor(), run.workload(), 1),
            "weight model.layers.1.mlp.up_proj.weight (layer 1) is not finite in step 1");
}

step::TrialRequest Request(const TrainConfig& config) {
  step::TrialRequest request;
  request.workload = SmallLlama();
  request.config = config;
  request.memory_bytes = 64 << 20;
  request.threads = 1;
  request.min_steps = request.max_steps = 4;
  return request;
}

TEST(Promotion, WaitsWhileStepsOverflowAndSaysWhere) {
  TrainConfig config = PureBf16(kAlways);
  config.param_dtype = config.compute_dtype = Dtype::kF16;
  config.optimizer_state_dtype = Dtype::kF32;
  config.loss_scale.initial = 0x1p30;
  step::TrialRequest request = Request(config);
  request.min_steps = request.max_steps = 30;
  std::vector<step::StepReport> reports;
  step::TrialEvents events;
  events.on_step = [&](const step::StepReport& report) { reports.push_back(report); };
  const Measurement measurement = step::RunTrial(request, events);
  EXPECT_EQ(measurement.outcome, Outcome::kOk) << measurement.message;
  EXPECT_GT(measurement.overflow_steps, 0);
  EXPECT_TRUE(reports[0].overflow);
  EXPECT_THAT(reports[0].overflow_in, ::testing::MatchesRegex(
      "gradient of .* \\((layer [0-2]|outside the layers)\\) is not finite in step 0"));
  const auto all = static_cast<int64_t>(Everything(request.workload).size());
  bool good = false;
  for (const step::StepReport& report : reports) {
    good = good || !report.overflow;
    EXPECT_EQ(report.promoted, good ? all : 0) << report.index;
    EXPECT_EQ(report.overflow, !report.overflow_in.empty());
  }
  EXPECT_TRUE(good);
}

TEST(Promotion, ThatDoesNotFitIsOutOfMemory) {
  step::TrialRequest request = Request(PureBf16());
  request.workload.model.hidden = 128;
  request.workload.model.head_dim = 32;
  request.workload.model.vocab = 8192;
  request.config.allocator.expandable_segments = true;
  const Measurement plain = step::RunTrial(request);
  ASSERT_EQ(plain.outcome, Outcome::kOk) << plain.message;
  request.memory_bytes = plain.peak_reserved_bytes;
  EXPECT_EQ(step::RunTrial(request).outcome, Outcome::kOk);
  request.config.promotion.grad_norm_threshold = kAlways;
  const Measurement promoted = step::RunTrial(request);
  EXPECT_EQ(promoted.outcome, Outcome::kOutOfMemory);
  EXPECT_EQ(promoted.phase, "optimizer");
  EXPECT_EQ(promoted.op, "promotion");
}

TEST(Promotion, LearnsWithAdaptersAndSgdToo) {
  for (const bool adapters : {false, true}) {
    step::TrialRequest request = Request(PureBf16(kAlways));
    if (adapters) request.workload.lora = {.rank = 4, .targets = "all-linear"};
    if (!adapters) request.workload.optimizer = Optimizer::kSgd;
    request.min_steps = request.max_steps = 20;
    request.optimizer.lr = adapters ? 1e-2 : 0.3;
    std::vector<int64_t> tokens(32);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i * 37 % 64);
    request.data = step::FixedTokens(tokens, tokens);
    int64_t promoted = 0;
    step::TrialEvents events;
    events.on_step = [&](const step::StepReport& report) { promoted = report.promoted; };
    const Measurement m = step::RunTrial(request, events);
    EXPECT_EQ(m.outcome, Outcome::kOk) << m.message;
    EXPECT_EQ(promoted, static_cast<int64_t>(Everything(request.workload).size()));
    EXPECT_LT(m.last_loss, 0.9 * m.first_loss);
  }
}

TEST(Promotion, RefusesWhatItDoesNotGoWith) {
  auto said = [](auto spoil) {
    step::TrialRequest request = Request(PureBf16(1e-4));
    spoil(request);
    const Measurement measurement = step::RunTrial(request);
    EXPECT_EQ(measurement.outcome, Outcome::kInvalid);
    return measurement.message;
  };
  EXPECT_THAT(said([](auto& r) { r.config.param_dtype = Dtype::kF32; }),
              HasSubstr("needs a 16-bit param_dtype without master_weights: fp32 weights"));
  EXPECT_THAT(said([](auto& r) { r.config.master_weights = true; }), HasSubstr("have masters"));
  EXPECT_THAT(said([](auto& r) { r.workload.optimizer = Optimizer::kAdamw8bit; }),
              HasSubstr("adamw-8bit"));
  EXPECT_THAT(said([](auto& r) { r.config.offload.optimizer = OptimizerOffload::kStream; }),
              HasSubstr("offload.optimizer is stream"));
  EXPECT_THAT(said([](auto& r) { r.config.promotion.hysteresis_ratio = 0.5; }),
              HasSubstr("hysteresis_ratio at least 1, got 0.000100 and 0.5"));
}

}  // namespace
}  // namespace hbmtune::testing

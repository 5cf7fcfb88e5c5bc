#include "tuner/search/history.h"

#include <gtest/gtest.h>

#include "tests/tuner/fake_device.h"

namespace hbmtune::tuner {
namespace {

TrainConfig Config(int64_t micro_batch) {
  TrainConfig config;
  config.micro_batch = micro_batch;
  return config;
}

TEST(Trial, IsJudgedByItsMeasurementWhereThereIsOne) {
  FakeDevice truth;
  FakeDevice optimist;
  optimist.capacity_bytes = 100'000'000;
  Trial trial = RunTrial(Config(100), truth, &optimist);
  EXPECT_TRUE(trial.estimate->fits);
  EXPECT_FALSE(Fitted(trial));
  EXPECT_TRUE(RanOutOfMemory(trial));
  trial.measurement.reset();
  EXPECT_TRUE(Fitted(trial));
  trial.finished = false;
  EXPECT_FALSE(Fitted(trial));
}

TEST(Trial, FailsInOtherWaysThanMemory) {
  Trial trial = RunTrial(Config(1), FakeDevice{}, nullptr);
  EXPECT_FALSE(Failed(trial));
  trial.measurement->outcome = Outcome::kTimeout;
  EXPECT_TRUE(Failed(trial));
  EXPECT_EQ(TokensPerSecond(trial), 0);
  trial.measurement->outcome = Outcome::kCancelled;
  EXPECT_FALSE(Failed(trial));
}

TEST(RulesOut, LargerMicroBatches) {
  EXPECT_TRUE(RulesOut(Config(8), Config(8)));
  EXPECT_TRUE(RulesOut(Config(8), Config(9)));
  EXPECT_FALSE(RulesOut(Config(8), Config(7)));
}

TEST(RulesOut, LessRecomputationAndLessOffload) {
  TrainConfig saver = Config(8);
  saver.checkpoint.every = 1;
  saver.offload.optimizer = OptimizerOffload::kStream;
  EXPECT_TRUE(RulesOut(saver, Config(8)));
  EXPECT_FALSE(RulesOut(Config(8), saver));
}

TEST(RulesOut, NothingThatIsNotOrdered) {
  TrainConfig a = Config(8);
  a.checkpoint.every = 4;
  TrainConfig b = Config(8);
  b.checkpoint.every = 6;
  EXPECT_FALSE(RulesOut(a, b));
  EXPECT_FALSE(RulesOut(b, a));
  a = b = Config(8);
  a.offload.optimizer = OptimizerOffload::kStream;
  b.offload.optimizer = OptimizerOffload::kCpuAdam;
  EXPECT_FALSE(RulesOut(a, b));
  a = b = Config(8);
  a.zero.stage = 3;
  b.zero.stage = 2;
  EXPECT_FALSE(RulesOut(a, b));
  a = b = Config(8);
  b.compute_dtype = Dtype::kBf16;
  EXPECT_FALSE(RulesOut(a, b));
}

TEST(FindBest, PrefersTheUsualAmongEquals) {
  FakeDevice device;
  device.recompute_speed = 1;
  TrainConfig plain = BaseConfig(Framework::kFused, {});
  TrainConfig odd = plain;
  odd.checkpoint.every = 2;
  History history = {RunTrial(odd, device, nullptr), RunTrial(plain, device, nullptr)};
  EXPECT_EQ(FindBest(Framework::kFused, history), &history[1]);
  EXPECT_EQ(FindBest(Framework::kFused, {}), nullptr);
}

TEST(EvidenceOf, CountsAMeasurementOnlyWhereAStepWasTaken) {
  const Estimate estimate;
  for (Outcome outcome : {Outcome::kCrashed, Outcome::kTimeout, Outcome::kDeviceLost,
                          Outcome::kCancelled, Outcome::kInvalid}) {
    Measurement measurement;
    measurement.outcome = outcome;
    EXPECT_EQ(EvidenceOf(Framework::kFused, estimate, measurement), Evidence::kPredicted)
        << Name(outcome);
    EXPECT_EQ(EvidenceOf(Framework::kFused, std::nullopt, measurement), Evidence::kPredicted);
    measurement.steps = 1;
    EXPECT_EQ(EvidenceOf(Framework::kFused, estimate, measurement), Evidence::kMeasured);
  }
  for (Outcome outcome : {Outcome::kOk, Outcome::kOutOfMemory, Outcome::kNotFinite}) {
    Measurement measurement;
    measurement.outcome = outcome;
    EXPECT_EQ(EvidenceOf(Framework::kFused, estimate, measurement), Evidence::kMeasured);
    EXPECT_EQ(EvidenceOf(Framework::kHfSdpa, estimate, measurement), Evidence::kReplayed);
  }
  EXPECT_EQ(EvidenceOf(Framework::kFused, estimate, std::nullopt), Evidence::kPredicted);
}

}  // namespace
}  // namespace hbmtune::tuner

#include "tuner/recommend/effects.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tuner/fake_device.h"

namespace hbmtune::tuner {
namespace {

Workload Job() {
  Workload workload;
  ModelSpec& model = workload.model;
  model.name = "small";
  model.hidden = 64, model.layers = 8, model.heads = 4, model.kv_heads = 2;
  model.head_dim = 16, model.ffn = 176, model.vocab = 500, model.max_positions = 512;
  workload.seq_len = 128;
  return workload;
}

std::vector<Effect> EffectsOf(const TrainConfig& config, const FakeDevice& device = {}) {
  auto estimator = [&](const Workload&, const TrainConfig& c) -> absl::StatusOr<Estimate> {
    return device.Estimated(c);
  };
  return Effects(Job(), DeviceFacts{}, config, device.Estimated(config), estimator);
}

const Effect* Find(const std::vector<Effect>& effects, const std::string& change) {
  auto found = std::find_if(effects.begin(), effects.end(),
                            [&](const Effect& effect) { return effect.change == change; });
  return found == effects.end() ? nullptr : &*found;
}

TEST(Effects, SayWhatEachChangeSavesAndCosts) {
  const FakeDevice device;
  TrainConfig config = BaseConfig(Framework::kFused, {});
  config.micro_batch = 8;
  const auto effects = EffectsOf(config);
  const Effect* recompute = Find(effects, "checkpoint.every=1");
  ASSERT_NE(recompute, nullptr);
  EXPECT_EQ(recompute->saved_bytes, 8 * device.sample_bytes * 3 / 4);
  EXPECT_NEAR(recompute->cost_ratio, 1 / device.recompute_speed - 1, 1e-9);
  EXPECT_EQ(recompute->tunable, "checkpoint.every");
  const Effect* offload = Find(effects, "offload.optimizer=stream");
  ASSERT_NE(offload, nullptr);
  EXPECT_EQ(offload->saved_bytes, device.fixed_bytes / 2);
}

TEST(Effects, MostSavedFirstAndNothingThatDoesNothing) {
  TrainConfig config = BaseConfig(Framework::kFused, {});
  config.micro_batch = 8;
  const auto effects = EffectsOf(config);
  ASSERT_FALSE(effects.empty());
  for (size_t i = 1; i < effects.size(); ++i) {
    EXPECT_GE(effects[i - 1].saved_bytes, effects[i].saved_bytes);
  }
  // The fake device does not know precision: no change of it saves anything.
  for (const Effect& effect : effects) EXPECT_NE(effect.tunable, "precision");
}

TEST(Effects, SayWhichWouldFit) {
  TrainConfig config = BaseConfig(Framework::kFused, {});
  config.micro_batch = 30;  // 1.3 MB of 1.0
  const auto effects = EffectsOf(config);
  EXPECT_TRUE(Find(effects, "checkpoint.every=1")->fits);
  EXPECT_FALSE(Find(effects, "offload.optimizer=stream")->fits);
}

TEST(Effects, KeepTheGlobalBatchWhenTheMicroBatchChanges) {
  TrainConfig config = BaseConfig(Framework::kFused, {});
  config.micro_batch = 8;
  config.grad_accum = 2;
  const auto effects = EffectsOf(config);
  EXPECT_NE(Find(effects, "micro_batch=4 with grad_accum=4"), nullptr);
  const Effect* doubled = Find(effects, "micro_batch=16 with grad_accum=1");
  ASSERT_NE(doubled, nullptr);
  EXPECT_LT(doubled->saved_bytes, 0);
  EXPECT_LT(doubled->cost_ratio, 0);
}

}  // namespace
}  // namespace hbmtune::tuner

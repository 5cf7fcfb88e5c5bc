#include "tuner/recommend/effects.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/core/field_path.h"
#include "kernels/core/precision.h"
#include "tests/tuner/fake_device.h"
#include "tuner/recommend/changes.h"

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

// What a change's text says ("a=1 with b=2, c=3"), done to `config`.
TrainConfig Followed(std::string text, TrainConfig config) {
  if (size_t with = text.find(" with "); with != std::string::npos) text.replace(with, 6, ", ");
  for (size_t at = 0; at < text.size();) {
    const size_t equals = text.find('=', at);
    const size_t end = std::min(text.find(", ", at), text.size());
    const std::string path = text.substr(at, equals - at);
    const std::string value = text.substr(equals + 1, end - equals - 1);
    if (path == "precision") {
      ApplyPrecision(*ParseEnum<Precision>(value), Framework::kHfSdpaDeepspeed, config);
    } else {
      const Json json = Json::parse(value, nullptr, false);
      SetField(config, path, json.is_discarded() ? Json(value) : json);
    }
    at = end + 2;
  }
  return config;
}

TEST(TunableChanges, SayAllThatTheySet) {
  Workload job = Job();
  job.framework = Framework::kHfSdpaDeepspeed;
  job.world_size = 8;
  TrainConfig plain = BaseConfig(job.framework, {});
  TrainConfig offloaded = plain;
  offloaded.zero.stage = 3;
  offloaded.offload.optimizer = OptimizerOffload::kCpuAdam;
  TrainConfig pieces = plain;
  pieces.checkpoint.attention = 1;
  for (const TrainConfig& config : {plain, offloaded, pieces}) {
    for (const Change& change : TunableChanges(job, {}, config)) {
      EXPECT_EQ(ToJson(Followed(Words(change), config)), ToJson(change.config)) << Words(change);
      EXPECT_EQ(Words(change).find(change.group + "=", 1), std::string::npos)
          << Words(change) << " takes back what it says";
    }
  }
  std::vector<std::string> texts;
  for (const Change& change : TunableChanges(job, {}, plain)) texts.push_back(Words(change));
  EXPECT_NE(std::find(texts.begin(), texts.end(),
                      "offload.activations=checkpoints with checkpoint.every=1"),
            texts.end());
}

}  // namespace
}  // namespace hbmtune::tuner

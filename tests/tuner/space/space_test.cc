#include "tuner/space/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernels/core/field_path.h"
#include "tests/tuner/workloads.h"

namespace hbmtune::tuner {
namespace {

std::vector<TrainConfig> All(const Space& space) {
  std::vector<TrainConfig> configs;
  space.ForEach([&](const TrainConfig& config) {
    configs.push_back(config);
    return true;
  });
  return configs;
}

// Values that a field takes over the whole space, as JSON texts.
std::set<std::string> Values(const Space& space, const std::string& path) {
  std::set<std::string> values;
  for (const TrainConfig& config : All(space)) values.insert(GetField(config, path)->dump());
  return values;
}

Space Make(const Workload& workload, const Pins& pins = {}, bool host = false) {
  absl::StatusOr<Space> space = Space::Create(workload, DeviceFacts{host}, pins);
  EXPECT_TRUE(space.ok()) << space.status();
  return *std::move(space);
}

class AnyFramework : public testing::TestWithParam<Framework> {};

TEST_P(AnyFramework, HoldsLegalConfigsOnlyEachOnce) {
  for (int64_t ranks : {1, 4}) {
    if (ranks > 1 && RunsOnOneRankOnly(GetParam())) continue;
    for (int64_t global_batch : {0, 24}) {
      Workload workload = MakeWorkload(GetParam(), "tiny-llama", ranks, global_batch);
      Space space = Make(workload, {{"micro_batch", 2}, {"allocator.max_split_size_mb", 0}});
      std::set<std::string> seen;
      space.ForEach([&](const TrainConfig& config) {
        absl::Status status = Validate(workload, config);
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_TRUE(seen.insert(ToJson(config).dump()).second) << ToJson(config);
        return status.ok();
      });
      EXPECT_EQ(static_cast<int64_t>(seen.size()), space.Count());
      EXPECT_GE(seen.size(), 2u);
    }
  }
}

// Count() multiplies the values of what decides nothing; here every config is visited.
TEST_P(AnyFramework, CountsWhatItVisitsUnderPinsWithLists) {
  const int64_t ranks = RunsOnOneRankOnly(GetParam()) ? 1 : 4;
  const Workload workload = MakeWorkload(GetParam(), "tiny-llama", ranks);
  const std::vector<std::pair<std::string, Json>> lists = {
      {"precision", {"fp32", "fp16-amp", "bf16-amp", "bf16"}},
      {"checkpoint.reentrant", {false, true}},
      {"cleanup_every_steps", {0, 10}},
      {"optimizer_loop", {"fused", "foreach"}},
      {"loss_scale.window", {100, 1000}},
      {"zero.sub_group_size", {1'000'000, 1'000'000'000}},
      {"zero.overlap_comm", {true}},
      {"fp32.norms", {true, false}},
      {"promotion.grad_norm_threshold", {0, 0.5}},
      {"promotion.hysteresis_ratio", {2.0, 3.0}},
      {"offload.pressure_ratio", {0.5, 0.9}},
      {"ddp.bucket_cap_mb", {25, 50, 100}}};
  int compared = 0;
  for (size_t skip = 0; skip < lists.size(); ++skip) {
    Pins pins = {{"micro_batch", 1}, {"checkpoint.every", {0, 1}}, {"offload.optimizer", "none"}};
    for (size_t i = 0; i < lists.size(); ++i) {
      // Three neighbours of the list at a time, so that the walk stays short.
      if ((i + lists.size() - skip) % lists.size() < 3) pins.insert(lists[i]);
    }
    if (GetParam() != Framework::kFused && !UsesDeepspeed(GetParam())) {
      pins.erase("offload.optimizer");
    }
    absl::StatusOr<Space> space = Space::Create(workload, {}, pins);
    if (!space.ok()) continue;  // a pin that the framework lacks
    ++compared;
    int64_t visited = 0;
    space->ForEach([&](const TrainConfig&) { return ++visited > 0; });
    EXPECT_EQ(visited, space->Count()) << skip;
  }
  EXPECT_GE(compared, 3);
}

TEST_P(AnyFramework, StartsFromSettingsThatItHolds) {
  Space space = Make(MakeWorkload(GetParam()));
  std::vector<TrainConfig> settings = space.Settings();
  ASSERT_FALSE(settings.empty());
  for (const TrainConfig& setting : settings) {
    EXPECT_TRUE(space.Contains(setting));
    for (const TrainConfig& refined : space.Refinements(setting)) {
      EXPECT_TRUE(space.Contains(refined));
      EXPECT_NE(ToJson(refined), ToJson(setting));
    }
  }
}

TEST_P(AnyFramework, DrawsTheSameLegalConfigsFromTheSameSeed) {
  Space space = Make(MakeWorkload(GetParam()));
  std::mt19937_64 first(7);
  std::mt19937_64 second(7);
  int drawn = 0;
  for (int i = 0; i < 100; ++i) {
    std::optional<TrainConfig> a = space.Sample(first);
    std::optional<TrainConfig> b = space.Sample(second);
    ASSERT_EQ(a.has_value(), b.has_value());
    if (!a) continue;
    ++drawn;
    EXPECT_EQ(ToJson(*a), ToJson(*b));
    EXPECT_TRUE(space.Contains(*a));
  }
  EXPECT_GT(drawn, 20);
}

INSTANTIATE_TEST_SUITE_P(All, AnyFramework, testing::ValuesIn(kAllFrameworks),
                         [](const auto& info) {
                           std::string name(Name(info.param));
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

TEST(Space, RefusesMoreSettingsThanCanBeWeighed) {
  Json many = Json::array();
  for (int i = 1; i <= 200; ++i) many.push_back(i);
  absl::StatusOr<Space> space = Space::Create(MakeWorkload(Framework::kFused), {},
                                              {{"cleanup_every_steps", many}});
  ASSERT_FALSE(space.ok());
  EXPECT_THAT(std::string(space.status().message()),
              testing::HasSubstr("more than 10000 settings"));
}

TEST(Space, PartitionsOnlyOverRanksOrWithOffload) {
  EXPECT_EQ(Values(Make(MakeWorkload(Framework::kFused)), "zero.stage"),
            std::set<std::string>({"0"}));
  EXPECT_EQ(Values(Make(MakeWorkload(Framework::kFused, "tiny-llama", 4), {{"micro_batch", 1}}),
                   "zero.stage"),
            std::set<std::string>({"0", "1", "2", "3"}));
  for (const TrainConfig& config : All(Make(MakeWorkload(Framework::kHfSdpaDeepspeed)))) {
    EXPECT_EQ(config.zero.stage > 0, config.offload.optimizer == OptimizerOffload::kCpuAdam);
  }
}

TEST(Space, VariesBucketsOnlyWithZero) {
  for (const TrainConfig& config : All(Make(MakeWorkload(Framework::kFused, "gpt2", 4, 8)))) {
    if (config.zero.stage == 0) {
      EXPECT_EQ(config.zero.reduce_bucket_size, ZeroConfig{}.reduce_bucket_size);
    }
  }
}

TEST(Space, OffersIntervalsThatTheLayersAllow) {
  Space deep = Make(MakeWorkload(Framework::kFused, "llama2-13b"));
  EXPECT_EQ(Values(deep, "checkpoint.every"),
            std::set<std::string>({"0", "1", "2", "4", "6", "8"}));
  EXPECT_EQ(Values(deep, "checkpoint.attention"), std::set<std::string>({"0", "1", "4"}));
  EXPECT_EQ(Values(deep, "checkpoint.mlp"), std::set<std::string>({"0", "1", "6"}));
  Space transformers = Make(MakeWorkload(Framework::kHfSdpa, "llama2-13b"));
  EXPECT_EQ(Values(transformers, "checkpoint.every"), std::set<std::string>({"0", "1"}));
  EXPECT_EQ(Values(transformers, "checkpoint.mlp"), std::set<std::string>({"0"}));
}

TEST(Space, NeverRecomputesHalfOfAParallelBlock) {
  EXPECT_EQ(Values(Make(MakeWorkload(Framework::kFused, "falcon-7b")), "checkpoint.attention"),
            std::set<std::string>({"0"}));
}

TEST(Space, OffloadsWholeLayersOnly) {
  for (const TrainConfig& config : Make(MakeWorkload(Framework::kFused)).Settings()) {
    if (config.offload.activations == ActivationOffload::kNone) continue;
    EXPECT_EQ(config.checkpoint.attention + config.checkpoint.mlp, 0);
  }
}

TEST(Space, ChangesNoNumericsUnasked) {
  EXPECT_EQ(Values(Make(MakeWorkload(Framework::kFused), {}, /*host=*/true), "compute_dtype"),
            std::set<std::string>({"\"fp32\""}));
  for (const TrainConfig& config : All(Make(MakeWorkload(Framework::kFused)))) {
    EXPECT_EQ(config.compute_dtype, Dtype::kBf16);
    EXPECT_EQ(config.optimizer_state_dtype, Dtype::kF32);
    EXPECT_TRUE(config.param_dtype == Dtype::kF32 || config.master_weights);
  }
  Workload lora = MakeWorkload(Framework::kHfSdpa);
  lora.lora.rank = 8;
  EXPECT_EQ(Values(Make(lora), "param_dtype"), std::set<std::string>({"\"fp32\"", "\"bf16\""}));
  lora.framework = Framework::kFused;  // trains adapters in param_dtype
  EXPECT_EQ(Values(Make(lora), "optimizer_state_dtype"), std::set<std::string>({"\"fp32\""}));
}

TEST(Space, MakesTheGlobalBatch) {
  Workload workload = MakeWorkload(Framework::kHfSdpaDdp, "tiny-llama", 4, 48);
  Space space = Make(workload);
  EXPECT_EQ(space.micro_batches(), std::vector<int64_t>({1, 2, 3, 4, 6, 12}));
  for (const TrainConfig& config : All(space)) {
    EXPECT_EQ(config.micro_batch * config.grad_accum * 4, 48);
  }
}

TEST(Space, MeasuresNothingOnTheHostThatTheHostDoesNotRun) {
  Workload workload = MakeWorkload(Framework::kFused);
  workload.world_size = 2;
  EXPECT_FALSE(Space::Create(workload, {true}).ok());
}

TEST(Space, PromotesWhereItIsPinnedOnTheHostToo) {
  const Space space = Make(MakeWorkload(Framework::kFused),
                           {{"precision", "bf16"}, {"promotion.grad_norm_threshold", 1e-4},
                            {"micro_batch", 1}}, /*host=*/true);
  for (const TrainConfig& config : All(space)) {
    EXPECT_EQ(config.promotion.grad_norm_threshold, 1e-4);
    EXPECT_EQ(config.offload.optimizer, OptimizerOffload::kNone);
    EXPECT_EQ(Validate(MakeWorkload(Framework::kFused), config), absl::OkStatus());
  }
}

TEST(Space, ContainsWhatLiesBetweenTheGridPoints) {
  Space space = Make(MakeWorkload(Framework::kFused));
  TrainConfig config = space.WithMicroBatch(space.Settings().front(), 37);
  EXPECT_TRUE(space.Contains(config));
  config.zero.reduce_bucket_size = 12345;
  EXPECT_FALSE(space.Contains(config));
  EXPECT_FALSE(space.Contains(space.WithMicroBatch(config, kLargestMicroBatch + 1)));
}

TEST(Space, ExplainsItself) {
  Space space = Make(MakeWorkload(Framework::kHfSdpaDeepspeed, "llama2-7b", 8, 64));
  SpaceSummary summary = ExplainSpace(space);
  EXPECT_EQ(summary.legal, static_cast<int64_t>(All(space).size()));
  EXPECT_LT(summary.settings, 100);
  EXPECT_FALSE(summary.axes.empty());
}

}  // namespace
}  // namespace hbmtune::tuner

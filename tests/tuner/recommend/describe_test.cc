#include "tuner/recommend/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "kernels/core/field_path.h"
#include "kernels/core/precision.h"
#include "tests/tuner/fake_device.h"
#include "tests/tuner/workloads.h"
#include "tuner/search/designer.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {
namespace {

using ::testing::ElementsAre;

TEST(Differences, AreEmptyBetweenEquals) {
  EXPECT_EQ(Differences(TrainConfig{}, TrainConfig{}), "");
}

TEST(Differences, SpeakTheFieldsWords) {
  TrainConfig from;
  TrainConfig to;
  to.micro_batch = 4;
  to.grad_accum = 8;
  to.checkpoint.every = 1;
  to.zero.stage = 2;
  to.zero.reduce_bucket_size = to.zero.allgather_bucket_size = 200'000'000;
  EXPECT_EQ(Differences(from, to),
            "micro-batch 4 × accumulation 8, checkpoint every layer, ZeRO 2, buckets 2e8");
  EXPECT_EQ(Differences(to, from), "micro-batch 1, no checkpointing, no ZeRO, buckets 5e8");
}

TEST(Differences, NameSeparateIntervals) {
  TrainConfig to;
  to.checkpoint.attention = 4;
  to.checkpoint.mlp = 6;
  EXPECT_EQ(Differences({}, to), "checkpoint one attention block in 4 and one MLP block in 6");
  to.checkpoint.attention = 0;
  to.checkpoint.mlp = 1;
  EXPECT_EQ(Differences({}, to), "checkpoint every MLP block");
}

TEST(Differences, CoverEveryField) {
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    TrainConfig changed;
    Json value = *GetField(changed, path);
    if (value.is_boolean()) value = !value.get<bool>();
    if (value.is_number_integer()) value = value.get<int64_t>() + 3;
    if (value.is_number_float()) value = value.get<double>() + 0.25;
    if (value.is_string()) {
      for (const char* other : {"bf16", "stream", "layers", "materialised", "foreach"}) {
        try {
          SetField(changed, path, other);
          value = other;
          break;
        } catch (const std::invalid_argument&) {
        }
      }
    }
    SetField(changed, path, value);
    EXPECT_NE(Differences(TrainConfig{}, changed), "") << path;
  }
}

TEST(Describe, SaysBatchCheckpointingAndPrecisionAlways) {
  TrainConfig config = BaseConfig(Framework::kHfSdpaDeepspeed, {});
  EXPECT_THAT(Describe(Framework::kHfSdpaDeepspeed, config),
              ElementsAre("micro-batch 1", "no checkpointing", "bf16 with fp32 masters"));
  config = BaseConfig(Framework::kHfSdpa, {});
  config.allocator.max_split_size_mb = 128;
  config.offload.optimizer = OptimizerOffload::kCpuAdam;
  EXPECT_THAT(Describe(Framework::kHfSdpa, config),
              ElementsAre("micro-batch 1", "no checkpointing", "bf16 autocast",
                          "optimizer on the CPU", "allocator.max_split_size_mb 128"));
  ApplyPrecision(Precision::kBf16, Framework::kHfSdpa, config);
  EXPECT_EQ(Describe(Framework::kHfSdpa, config)[2], "pure bf16");
}

TEST(Describe, LeavesOutTheLossScaleThatAPrecisionBrings) {
  TrainConfig config = BaseConfig(Framework::kHfSdpaDeepspeed, {});
  ApplyPrecision(Precision::kFp16Amp, Framework::kHfSdpaDeepspeed, config);
  EXPECT_THAT(Describe(Framework::kHfSdpaDeepspeed, config),
              ElementsAre("micro-batch 1", "no checkpointing", "fp16 with fp32 masters"));
}

TEST(Describe, SaysEveryChoiceOfDtypesInWordsOfItsOwn) {
  std::map<std::string, std::string> told;
  const Dtype dtypes[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};
  for (Dtype weights : dtypes) {
    for (Dtype products : dtypes) {
      for (Dtype moments : dtypes) {
        for (bool masters : {false, true}) {
          TrainConfig config;
          config.param_dtype = weights;
          config.compute_dtype = products;
          config.optimizer_state_dtype = moments;
          config.master_weights = masters;
          const std::string words = Describe(Framework::kFused, config)[2];
          const auto [other, added] = told.emplace(words, ToJson(config).dump());
          EXPECT_TRUE(added) << words << " is also " << other->second;
        }
      }
    }
  }
}

// Runs a designer, or draws, and compares the words of whatever differs.
class Words {
 public:
  explicit Words(Framework framework) : framework_(framework) {}

  void Add(const TrainConfig& config) {
    std::string words;
    for (const std::string& line : Describe(framework_, config)) words += line + ", ";
    const std::string json = ToJson(config).dump();
    const auto [known, added] = told_.emplace(words, json);
    EXPECT_EQ(known->second, json) << Name(framework_) << ": " << words;
  }
  size_t size() const { return told_.size(); }

 private:
  Framework framework_;
  std::map<std::string, std::string> told_;
};

TEST(Describe, TellsTheTrialsOfAStudyApart) {
  const FakeDevice device;
  for (Framework framework : kAllFrameworks) {
    for (bool host : {false, true}) {
      Words words(framework);
      const int64_t ranks = host || RunsOnOneRankOnly(framework) ? 1 : 4;
      const Workload workload = MakeWorkload(framework, "llama2-7b", ranks);
      absl::StatusOr<Space> space = Space::Create(workload, {host});
      if (!space.ok()) continue;  // DDP needs ranks, which the host has not
      for (const std::string& name : DesignerNames()) {
        DesignerOptions options{.seed = 7, .budget_trials = 40, .modelled = true};
        auto designer = *MakeDesigner(name, *space, device.AsEstimator(), options);
        for (const Trial& trial : RunStudy(*designer, device, nullptr)) words.Add(trial.config);
      }
      EXPECT_GE(words.size(), 40u) << Name(framework);
    }
  }
}

TEST(Describe, TellsDrawsFromAPinnedSpaceApart) {
  for (Framework framework : kAllFrameworks) {
    Words words(framework);
    const int64_t ranks = RunsOnOneRankOnly(framework) ? 1 : 4;
    Pins pins = {{"precision", {"fp32", "bf16", "bf16-amp", "fp16-amp"}}};
    if (framework == Framework::kFused) {
      pins["attention"] = {"tiled", "materialised"};
      pins["loss_chunk_tokens"] = {0, 1024};
      pins["fp32.norms"] = {true, false};
    }
    absl::StatusOr<Space> space =
        Space::Create(MakeWorkload(framework, "llama2-7b", ranks), {}, pins);
    ASSERT_TRUE(space.ok()) << space.status();
    std::mt19937_64 random(11);
    for (int i = 0; i < 500; ++i) {
      if (std::optional<TrainConfig> config = space->Sample(random)) words.Add(*config);
    }
    EXPECT_GE(words.size(), 100u) << Name(framework);
  }
}

}  // namespace
}  // namespace hbmtune::tuner

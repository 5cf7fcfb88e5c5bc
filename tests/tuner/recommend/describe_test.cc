#include "tuner/recommend/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/field_path.h"
#include "kernels/core/precision.h"
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

}  // namespace
}  // namespace hbmtune::tuner

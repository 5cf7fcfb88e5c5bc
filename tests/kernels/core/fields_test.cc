#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "kernels/core/field_path.h"
#include "kernels/core/precision.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune {
namespace {

using ::testing::Contains;
using ::testing::Not;

TEST(FieldPath, NamesLeavesOnly) {
  EXPECT_THAT(FieldPaths<TrainConfig>(), Contains("zero.stage"));
  EXPECT_THAT(FieldPaths<TrainConfig>(), Not(Contains("zero")));
}

TEST(FieldPath, ReadsAndWritesEveryField) {
  const TrainConfig config;
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    TrainConfig copy;
    ASSERT_TRUE(GetField(config, path)) << path;
    SetField(copy, path, *GetField(config, path));
    EXPECT_EQ(ToJson(copy), ToJson(config)) << path;
  }
  TrainConfig changed;
  SetField(changed, "zero.stage", 2);
  EXPECT_EQ(changed.zero.stage, 2);
}

TEST(FieldPath, TellsNeighboursOfOnePrefixApart) {
  TrainConfig config;
  SetField(config, "offload.optimizer", "stream");
  EXPECT_EQ(config.offload.optimizer, OptimizerOffload::kStream);
  EXPECT_EQ(*GetField(config, "optimizer_loop"), "fused");
  EXPECT_FALSE(GetField(config, "optimizer"));
}

TEST(FieldPath, RejectsWhatIsNoField) {
  TrainConfig config;
  EXPECT_THROW(SetField(config, "zero", 1), std::invalid_argument);
  EXPECT_THROW(SetField(config, "zero.", 1), std::invalid_argument);
  EXPECT_THROW(SetField(config, "micro_batch", "many"), std::invalid_argument);
  EXPECT_FALSE(GetField(config, "micro_batch.x"));
}

TEST(Precision, HasANameForWhatItApplied) {
  for (Framework framework : {Framework::kFused, Framework::kHfSdpa, Framework::kHfSdpaDdp}) {
    for (std::string_view name : EnumNames<Precision>::kNames) {
      TrainConfig config;
      ApplyPrecision(*ParseEnum<Precision>(name), framework, config);
      EXPECT_EQ(Name(*PrecisionOf(framework, config)), name);
    }
  }
}

TEST(Precision, MeansMasterWeightsUnderDeepspeed) {
  TrainConfig config;
  ApplyPrecision(Precision::kFp16Amp, Framework::kHfSdpaDeepspeed, config);
  EXPECT_EQ(config.param_dtype, Dtype::kF16);
  EXPECT_TRUE(config.master_weights);
  EXPECT_EQ(config.loss_scale.window, 1000);
  ApplyPrecision(Precision::kBf16, Framework::kHfSdpaDeepspeed, config);
  EXPECT_EQ(config.param_dtype, Dtype::kBf16);
  EXPECT_TRUE(config.master_weights);
  EXPECT_EQ(config.loss_scale.window, 2000);
}

}  // namespace
}  // namespace hbmtune

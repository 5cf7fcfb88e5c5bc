#include "kernels/memory/allocator_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/json.h"
#include "kernels/core/units.h"

namespace hbmtune::memory {
namespace {

std::string ErrorOf(const std::string& text) {
  try {
    AllocatorConfig::Parse(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(AllocatorConfig, ReadsEverySetting) {
  AllocatorConfig config = AllocatorConfig::Parse(
      "max_split_size_mb:128, max_non_split_rounding_mb:40,garbage_collection_threshold:0.6,"
      "large_segment_size_mb:32,expandable_segments:True,per_process_memory_fraction:0.5,"
      "pinned_max_round_threshold_mb:64,roundup_power2_divisions:8");
  EXPECT_EQ(config.max_split_size_bytes, 128 * kMiB);
  EXPECT_EQ(config.max_non_split_rounding_bytes, 40 * kMiB);
  EXPECT_EQ(config.garbage_collection_threshold, 0.6);
  EXPECT_EQ(config.large_segment_bytes, 32 * kMiB);
  EXPECT_TRUE(config.expandable_segments);
  EXPECT_EQ(config.per_process_memory_fraction, 0.5);
  EXPECT_EQ(config.pinned_max_round_bytes, 64 * kMiB);
  EXPECT_EQ(config.DivisionsFor(kGiB), 8);
}

TEST(AllocatorConfig, FillsDivisionSlotsAsPyTorchDoes) {
  AllocatorConfig config =
      AllocatorConfig::Parse("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]");
  EXPECT_EQ(config.DivisionsFor(32 * kMiB), 8);
  EXPECT_EQ(config.DivisionsFor(64 * kMiB), 8);
  EXPECT_EQ(config.DivisionsFor(128 * kMiB), 2);
  EXPECT_EQ(config.DivisionsFor(256 * kMiB), 4);
  EXPECT_EQ(config.DivisionsFor(512 * kMiB), 2);
  EXPECT_EQ(config.DivisionsFor(1024 * kMiB), 4);
  EXPECT_EQ(config.DivisionsFor(2048 * kMiB), 1);
  EXPECT_EQ(config.DivisionsFor(64 * kGiB), 1);
}

TEST(AllocatorConfig, FillsTheLastKeysOwnSlotUnderOlderRules) {
  AllocatorConfig config = AllocatorConfig::Parse("roundup_power2_divisions:[64:8,1024:4,>:1]",
                                                  AllocatorRules::kTorch2_9);
  EXPECT_EQ(config.DivisionsFor(512 * kMiB), 0);
  EXPECT_EQ(config.DivisionsFor(1024 * kMiB), 1);
  EXPECT_EQ(config.DivisionsFor(2048 * kMiB), 1);
}

TEST(AllocatorConfig, PrintsWhatItReads) {
  for (std::string text :
       {"", "expandable_segments:True", "roundup_power2_divisions:4",
        "max_split_size_mb:200,garbage_collection_threshold:0.8,per_process_memory_fraction:0.9",
        "roundup_power2_divisions:[256:1,512:2,>:4]",
        "large_segment_size_mb:64,max_split_size_mb:64",
        "backend:native,pinned_num_register_threads:8",
        "max_non_split_rounding_mb:25,pinned_max_round_threshold_mb:1024"}) {
    AllocatorConfig config = AllocatorConfig::Parse(text);
    EXPECT_EQ(AllocatorConfig::Parse(config.ToString()), config) << text;
  }
}

TEST(AllocatorConfig, PrintsOnlyWhatDiffersFromTheDefaults) {
  EXPECT_EQ(AllocatorConfig().ToString(), "");
  EXPECT_EQ(AllocatorConfig::Parse("expandable_segments:False").ToString(), "");
  EXPECT_EQ(AllocatorConfig::Parse("max_split_size_mb:200").ToString(), "max_split_size_mb:200");
}

TEST(AllocatorConfig, SurvivesJson) {
  AllocatorConfig config = AllocatorConfig::Parse(
      "max_split_size_mb:128,expandable_segments:True,roundup_power2_divisions:[4:8,8:2,>:4]");
  AllocatorConfig back;
  FromJson(ToJson(config), back);
  EXPECT_EQ(back, config);
}

TEST(AllocatorConfig, NamesKeyAndValueOfAnError) {
  EXPECT_THAT(ErrorOf("max_split:100"), testing::HasSubstr("max_split"));
  EXPECT_THAT(ErrorOf("max_split_size_mb:19"), testing::HasSubstr("at least 20"));
  EXPECT_THAT(ErrorOf("max_split_size_mb:lots"), testing::HasSubstr("\"lots\""));
  EXPECT_THAT(ErrorOf("max_split_size_mb"), testing::HasSubstr("needs a value"));
  EXPECT_THAT(ErrorOf("expandable_segments:true"), testing::HasSubstr("True or False"));
  EXPECT_THAT(ErrorOf("garbage_collection_threshold:1.0"), testing::HasSubstr("(0, 1)"));
  EXPECT_THAT(ErrorOf("roundup_power2_divisions:3"), testing::HasSubstr("power of two"));
  EXPECT_THAT(ErrorOf("roundup_power2_divisions:[256:1,512"), testing::HasSubstr("bracket"));
  EXPECT_THAT(ErrorOf("roundup_power2_divisions:[300:1]"), testing::HasSubstr("power of two"));
  EXPECT_THAT(ErrorOf("backend:cudaMallocAsync"), testing::HasSubstr("not modelled"));
  EXPECT_THAT(ErrorOf("large_segment_size_mb:64,max_split_size_mb:32"),
              testing::HasSubstr("at least 64"));
  EXPECT_THAT(ErrorOf("max_split_size_mb:32,large_segment_size_mb:64"),
              testing::HasSubstr("at least 64"));
  EXPECT_THAT(ErrorOf("large_segment_size_mb:10"), testing::HasSubstr("at least 11"));
}

TEST(AllocatorConfig, TakesTheTunablesOfATrainConfig) {
  AllocatorTunables tunables;
  EXPECT_EQ(AllocatorConfig::From(tunables), AllocatorConfig());
  tunables.max_split_size_mb = 200;
  tunables.roundup_power2_divisions = 8;
  tunables.expandable_segments = true;
  EXPECT_EQ(AllocatorConfig::From(tunables),
            AllocatorConfig::Parse("max_split_size_mb:200,roundup_power2_divisions:8,"
                                   "expandable_segments:True"));
}

}  // namespace
}  // namespace hbmtune::memory

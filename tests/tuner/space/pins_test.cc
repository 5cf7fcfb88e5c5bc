#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/field_path.h"
#include "tests/tuner/workloads.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Pins Parse(std::initializer_list<std::string> texts) {
  Pins pins;
  for (const std::string& text : texts) {
    absl::Status status = ParsePin(text, pins);
    EXPECT_TRUE(status.ok()) << status;
  }
  return pins;
}

// The settings' values of a field, in order, each once.
std::vector<Json> Values(const Workload& workload, std::initializer_list<std::string> texts,
                         const std::string& path) {
  absl::StatusOr<Space> space = Space::Create(workload, {}, Parse(texts));
  EXPECT_TRUE(space.ok()) << space.status();
  std::vector<Json> values;
  if (!space.ok()) return values;
  for (const TrainConfig& config : space->Settings()) {
    Json value = *GetField(config, path);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

std::string ErrorOf(const Workload& workload, const Pins& pins) {
  absl::StatusOr<Space> space = Space::Create(workload, {}, pins);
  return space.ok() ? "" : std::string(space.status().message());
}

const Workload kFour = MakeWorkload(Framework::kFused, "llama2-7b", 4);

TEST(ParsePin, ReadsValuesListsAndRanges) {
  Pins pins = Parse({"zero.stage=2", "checkpoint.every=0,1,4", "micro-batch=1:16",
                     "zero.overlap-comm=true", "precision=bf16", "zero.reduce-bucket-size=2e8"});
  EXPECT_EQ(pins["zero.stage"], 2);
  EXPECT_EQ(pins["checkpoint.every"], Json::parse("[0,1,4]"));
  EXPECT_EQ(pins["micro_batch"], Json::parse(R"({"min":1,"max":16})"));
  EXPECT_EQ(pins["zero.overlap_comm"], true);
  EXPECT_EQ(pins["precision"], "bf16");
  EXPECT_EQ(pins["zero.reduce_bucket_size"], 200'000'000);
}

TEST(ParsePin, RejectsWhatIsNoPin) {
  Pins pins;
  for (const char* text : {"", "zero.stage", "=2", "zero.stage="}) {
    EXPECT_FALSE(ParsePin(text, pins).ok()) << text;
  }
}

TEST(Pins, FixAndNarrow) {
  EXPECT_EQ(Values(kFour, {"zero.stage=2"}, "zero.stage"), std::vector<Json>({2}));
  EXPECT_EQ(Values(kFour, {"zero.stage=1:2"}, "zero.stage"), std::vector<Json>({1, 2}));
  EXPECT_EQ(Values(kFour, {"checkpoint.every=0,3"}, "checkpoint.every"),
            std::vector<Json>({0, 3}));
}

TEST(Pins, RuleOutConfigsInWhichTheyAreVoid) {
  EXPECT_EQ(Values(kFour, {"checkpoint.attention=4"}, "checkpoint.every"),
            std::vector<Json>({0}));
  Workload deepspeed = MakeWorkload(Framework::kHfSdpaDeepspeed, "llama2-7b");
  EXPECT_EQ(Values(deepspeed, {"offload.activations=checkpoints"}, "checkpoint.every"),
            std::vector<Json>({1}));
  EXPECT_EQ(Values(deepspeed, {"zero.stage=2"}, "offload.optimizer"),
            std::vector<Json>({"cpu_adam"}));
}

TEST(Pins, OfDetailsTurnNothingOn) {
  EXPECT_EQ(Values(kFour, {"zero.reduce_bucket_size=1000000"}, "zero.stage"),
            std::vector<Json>({0, 1, 2, 3}));
  EXPECT_EQ(Values(kFour, {"zero.reduce_bucket_size=1000000", "zero.stage=2"},
                   "zero.reduce_bucket_size"),
            std::vector<Json>({1000000}));
}

TEST(Pins, MayAskForPrecisionsThatAreNotSearched) {
  EXPECT_EQ(Values(kFour, {"precision=fp32,bf16"}, "param_dtype"),
            std::vector<Json>({"fp32", "bf16"}));
  EXPECT_EQ(Values(kFour, {"precision=fp32,bf16"}, "master_weights"), std::vector<Json>({false}));
}

TEST(Pins, OnDtypesChooseAmongPrecisions) {
  EXPECT_EQ(Values(kFour, {"param_dtype=fp32"}, "compute_dtype"), std::vector<Json>({"bf16"}));
  EXPECT_EQ(Values(kFour, {"param_dtype=bf16"}, "master_weights"), std::vector<Json>({true}));
  EXPECT_EQ(Values(kFour, {"compute_dtype=fp32"}, "param_dtype"), std::vector<Json>({"fp32"}));
}

TEST(Pins, ChooseMicroBatchAndAccumulation) {
  Workload batch = MakeWorkload(Framework::kFused, "tiny-llama", 1, 24);
  absl::StatusOr<Space> space = Space::Create(batch, {}, Parse({"grad_accum=2:4"}));
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->micro_batches(), std::vector<int64_t>({6, 8, 12}));
  space = Space::Create(MakeWorkload(Framework::kFused), {}, Parse({"grad_accum=4"}));
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->Settings().front().grad_accum, 4);
  space = Space::Create(MakeWorkload(Framework::kFused), {}, Parse({"micro_batch=2000"}));
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->micro_batches(), std::vector<int64_t>({2000}));
}

TEST(Pins, ThatContradictNameTheReason) {
  Workload one = MakeWorkload(Framework::kFused);
  EXPECT_THAT(ErrorOf(one, {{"zero.stage", 2}}),
              AllOf(HasSubstr("zero.stage 2"), HasSubstr("world_size over 1")));
  EXPECT_THAT(ErrorOf(one, {{"checkpoint.every", 1}, {"checkpoint.mlp", 6}}),
              HasSubstr("checkpoint.mlp 6 needs checkpoint.every 0"));
  EXPECT_THAT(ErrorOf(MakeWorkload(Framework::kFused, "tiny-llama", 1, 24), {{"micro_batch", 5}}),
              HasSubstr("global_batch 24"));
}

TEST(Pins, OnWhatTheFrameworkLacksSaySo) {
  EXPECT_THAT(ErrorOf(MakeWorkload(Framework::kHfSdpa), {{"zero.stage", 2}}),
              HasSubstr("hf-sdpa has no zero.stage"));
  EXPECT_THAT(ErrorOf(MakeWorkload(Framework::kHfSdpa), {{"checkpoint.every", 4}}),
              HasSubstr("every layer or none"));
}

TEST(Pins, OnUnknownFieldsSuggestTheNearest) {
  EXPECT_THAT(ErrorOf(kFour, {{"zero.stag", 2}}),
              AllOf(HasSubstr("zero.stag"), HasSubstr("did you mean zero.stage?")));
  EXPECT_THAT(ErrorOf(kFour, {{"zero.stage", "two"}}), HasSubstr("zero.stage"));
  EXPECT_THAT(ErrorOf(kFour, {{"precision", "fp8"}}), HasSubstr("'fp8'"));
  EXPECT_THAT(ErrorOf(kFour, {{"micro_batch", 0}}), HasSubstr("micro_batch 0"));
  EXPECT_THAT(ErrorOf(kFour, Parse({"zero.stage=3:1"})), HasSubstr("is empty"));
}

TEST(Pins, ContradictingOnesOfOneFieldAreRefused) {
  Pins pins = Parse({"zero.stage=2", "zero.stage=2", "micro-batch=1:4"});
  EXPECT_THAT(std::string(ParsePin("zero.stage=1", pins).message()),
              HasSubstr("zero.stage is pinned twice, to 2 and to 1"));
  EXPECT_FALSE(ParsePin("micro_batch=8", pins).ok());
  EXPECT_EQ(pins.at("zero.stage"), Json(2));
}

TEST(Pins, OutOfRangeAreRefusedEvenWhereTheFieldIsVoid) {
  Workload workload = MakeWorkload(Framework::kFused);
  for (const char* text : {"offload.keep_ratio=0.6", "offload.keep_ratio=-0.1",
                           "offload.pressure_ratio=1.5", "offload.pressure_ratio=0.5,-1"}) {
    EXPECT_THAT(ErrorOf(workload, Parse({text})), HasSubstr("must lie between 0 and")) << text;
  }
  EXPECT_THAT(ErrorOf(workload, Parse({"zero.stage=4"})), HasSubstr("0 to 3"));
  EXPECT_THAT(ErrorOf(workload, Parse({"zero.stage=-1"})), HasSubstr("0 to 3"));
}

}  // namespace
}  // namespace hbmtune::tuner

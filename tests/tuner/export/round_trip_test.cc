// Import(Export(c)) == c for every config of every framework's space.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/core/json.h"
#include "tests/tuner/workloads.h"
#include "tuner/export/export.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {
namespace {

absl::Status RoundTrip(const Workload& workload, const TrainConfig& config,
                       const std::vector<ExportFormat>& formats, TrainConfig& read) {
  read = BaseConfig(workload.framework, {});
  for (ExportFormat format : formats) {
    absl::StatusOr<std::string> text = Export(workload, config, format);
    if (!text.ok()) return text.status();
    absl::Status status = Import(workload.framework, format, *text, read);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The number of configs that came back as they were.
int64_t CheckSpace(const Workload& workload, const Pins& pins = {}) {
  absl::StatusOr<Space> space = Space::Create(workload, {}, pins);
  EXPECT_TRUE(space.ok()) << space.status();
  int64_t same = 0;
  if (!space.ok()) return same;
  std::vector<ExportFormat> formats = NativeFormats(workload.framework);
  space->ForEach([&](const TrainConfig& config) {
    TrainConfig read;
    absl::Status status = RoundTrip(workload, config, formats, read);
    std::next_permutation(formats.begin(), formats.end());  // the order must not matter
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(read.micro_batch, config.micro_batch);
    bool equal = ToJson(read) == ToJson(config);
    EXPECT_TRUE(equal) << Json::diff(ToJson(config), ToJson(read));
    same += equal;
    return status.ok() && equal;
  });
  EXPECT_EQ(same, space->Count());
  return same;
}

class RoundTripTest : public testing::TestWithParam<Framework> {};

TEST_P(RoundTripTest, GivesBackTheWholeSpaceOnOneRank) {
  EXPECT_GT(CheckSpace(MakeWorkload(GetParam(), "llama2-7b", 1, 12)), 0);
}

// Frameworks that run on more than one rank.
using RoundTripOverRanksTest = RoundTripTest;

TEST_P(RoundTripOverRanksTest, GivesBackTheWholeSpaceOnEightRanks) {
  Pins pins;
  if (GetParam() == Framework::kFused) {
    // It writes its own JSON; a third of a million configs add nothing.
    pins = {{"allocator.max_split_size_mb", 0}, {"micro_batch", 2}};
  }
  EXPECT_GT(CheckSpace(MakeWorkload(GetParam(), "falcon-7b", 8, 64), pins), 0);
}

TEST_P(RoundTripTest, GivesBackLora) {
  Workload workload = MakeWorkload(GetParam(), "gpt2", 1, 4);
  workload.lora.rank = 8;
  EXPECT_GT(CheckSpace(workload), 0);
}

// What is searched only when pinned comes back too.
TEST_P(RoundTripTest, GivesBackWhatIsPinned) {
  Workload workload = MakeWorkload(GetParam(), "llama2-7b", 1, 4);
  Pins pins = {{"precision", Json{"fp16-amp"}},
               {"allocator.garbage_collection_threshold", 0.8},
               {"allocator.expandable_segments", true},
               {"cleanup_every_steps", 100}};
  bool deepspeed = UsesDeepspeed(GetParam());
  if (!deepspeed) pins["precision"] = Json{"fp32", "fp16-amp", "bf16-amp", "bf16"};
  if (GetParam() != Framework::kFused) pins["checkpoint.reentrant"] = true;
  if (GetParam() != Framework::kFused && !deepspeed) pins["optimizer_loop"] = "foreach";
  if (deepspeed) {
    pins["loss_scale.initial"] = 4096.0;
    pins["loss_scale.hysteresis"] = 3;
    pins["zero.sub_group_size"] = 100'000'000;
    pins["zero.param_persistence_threshold"] = 10'000;
  }
  EXPECT_GT(CheckSpace(workload, pins), 0);
}

std::string TestName(const testing::TestParamInfo<Framework>& info) {
  std::string name(Name(info.param));
  for (char& c : name) c = std::isalnum(c) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, RoundTripTest, testing::ValuesIn(kAllFrameworks), TestName);
INSTANTIATE_TEST_SUITE_P(All, RoundTripOverRanksTest,
                         testing::Values(Framework::kFused, Framework::kHfEagerDdp,
                                         Framework::kHfSdpaDdp, Framework::kHfEagerDeepspeed,
                                         Framework::kHfSdpaDeepspeed),
                         TestName);

}  // namespace
}  // namespace hbmtune::tuner

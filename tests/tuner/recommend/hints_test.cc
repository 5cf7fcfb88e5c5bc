#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "kernels/device/profile.h"
#include "tests/tuner/workloads.h"
#include "tuner/predict/predict.h"
#include "tuner/recommend/recommend.h"

// Hints of the modelled device about real models.
namespace hbmtune::tuner {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kGiB = int64_t{1} << 30;

WorkloadEstimator On(const std::string& name, int64_t capacity_bytes = 0, int* count = nullptr) {
  return [profile = *device::FindProfile(name), capacity_bytes, count](const Workload& workload,
                                                                       const TrainConfig& config) {
    if (count != nullptr) ++*count;
    return Predict(workload, config, profile, {.capacity_bytes = capacity_bytes});
  };
}

Workload Training(Framework framework, const std::string& model) {
  Workload workload = MakeWorkload(framework, model);
  workload.seq_len = 2048;
  return workload;
}

Shortfall Explain(const Workload& workload, const WorkloadEstimator& estimate,
                  const Pins& pins = {}, const std::vector<LargerDevice>& larger = {}) {
  absl::StatusOr<Space> space = Space::Create(workload, {}, pins);
  EXPECT_TRUE(space.ok()) << space.status();
  absl::StatusOr<Shortfall> shortfall = ExplainShortfall(*space, {}, estimate, larger);
  EXPECT_TRUE(shortfall.ok()) << shortfall.status();
  return shortfall.value_or(Shortfall{});
}

std::vector<std::string> Fitting(const Shortfall& shortfall) {
  std::vector<std::string> changes;
  for (const Hint& hint : shortfall.hints) {
    if (!hint.fits) continue;
    changes.push_back(hint.change);
    EXPECT_GT(hint.peak_used_bytes, 0) << hint.change;
    EXPECT_EQ(hint.saved_bytes, shortfall.estimate.peak_used_bytes - hint.peak_used_bytes);
  }
  return changes;
}

TEST(Hints, NameFrameworkLoraGpusAndALargerCardInThatOrder) {
  Shortfall shortfall = Explain(
      Training(Framework::kHfEager, "llama2-13b"), On("mi210"), {},
      {{"model:mi300x", On("mi300x")}, {"model:mi325x", On("mi325x")},
       {"model:mi355x", On("mi355x")}});
  EXPECT_THAT(
      Fitting(shortfall),
      ElementsAre("framework=hf-eager+deepspeed with offload.optimizer=cpu_adam, zero.stage=2",
                  "lora.rank=16",
                  "framework=hf-eager+deepspeed and world_size=4 with zero.stage=3",
                  "device=model:mi325x"));
  EXPECT_THAT(shortfall.message, Not(HasSubstr("no change")));
}

TEST(Hints, NameTheSettingThatAPinForbids) {
  Workload workload = Training(Framework::kHfSdpaDeepspeed, "llama2-7b");
  EXPECT_THAT(Fitting(Explain(workload, On("mi210"), {{"offload.optimizer", "none"}})).front(),
              "offload.optimizer=cpu_adam with zero.stage=2");
  workload = Training(Framework::kHfSdpa, "gpt2-xl");
  workload.seq_len = 1024;
  Pins pins = {{"checkpoint.every", 0}, {"micro_batch", 4}};
  EXPECT_THAT(Fitting(Explain(workload, On("mi210", 40 * kGiB), pins)).front(),
              "checkpoint.every=1");
}

TEST(Hints, NameTheLongestSequenceThatFits) {
  Workload workload = Training(Framework::kHfSdpa, "qwen2-7b");
  workload.lora.rank = 16;
  workload.seq_len = 32768;
  Shortfall shortfall = Explain(workload, On("mi210"));
  EXPECT_THAT(Fitting(shortfall), ::testing::Contains("seq_len=16384"));
}

TEST(Hints, JoinTwoChangesWhereNoneAloneFits) {
  int estimates = 0;
  Workload workload = Training(Framework::kHfSdpa, "llama2-70b");
  FindShortfall(*Space::Create(workload, {}), On("mi210", 0, &estimates)).IgnoreError();
  const int least = std::exchange(estimates, 0);
  Shortfall shortfall = Explain(workload, On("mi210", 0, &estimates));
  EXPECT_LE(estimates, least + kMostHintEstimates);
  ASSERT_FALSE(shortfall.hints.empty());
  EXPECT_LE(shortfall.hints.size(), 4u);
  EXPECT_EQ(Fitting(shortfall).size(), shortfall.hints.size());
  EXPECT_EQ(shortfall.hints.front().change,
            "framework=hf-sdpa+deepspeed and world_size=4 with offload.optimizer=cpu_adam, "
            "zero.stage=3");
}

TEST(Hints, SayThatNothingHelps) {
  Shortfall shortfall =
      Explain(Training(Framework::kHfSdpa, "llama2-70b"), On("mi210", 4 * kGiB));
  EXPECT_THAT(Fitting(shortfall), ElementsAre());
  ASSERT_EQ(shortfall.hints.size(), 4u);
  for (size_t i = 1; i < shortfall.hints.size(); ++i) {
    EXPECT_GE(shortfall.hints[i - 1].saved_bytes, shortfall.hints[i].saved_bytes);
  }
  EXPECT_THAT(shortfall.message,
              AllOf(StartsWith("nothing fits in 2.00 GiB"),
                    EndsWith("; no change that was tried makes it fit, alone or with another")));
}

TEST(Hints, EndWhenToldTo) {
  int estimates = 0;
  const Space space = *Space::Create(Training(Framework::kHfSdpa, "llama2-70b"), {});
  absl::StatusOr<Shortfall> shortfall = ExplainShortfall(
      space, {}, On("mi210", 0, &estimates), {}, [&] { return estimates >= 10; });
  ASSERT_TRUE(shortfall.ok());
  EXPECT_EQ(estimates, 10);
  EXPECT_THAT(shortfall->message, EndsWith("; there was no time to try every change"));
}

}  // namespace
}  // namespace hbmtune::tuner

#include "tuner/recommend/recommend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/json.h"
#include "tests/tuner/fake_device.h"
#include "tests/tuner/workloads.h"

namespace hbmtune::tuner {
namespace {

using ::testing::HasSubstr;

Space MakeSpace(Framework framework = Framework::kFused, int64_t global_batch = 0) {
  return *Space::Create(MakeWorkload(framework, "tiny-llama", 1, global_batch), {});
}

TrainConfig Config(const Space& space, int64_t micro_batch, int64_t every = 0) {
  TrainConfig base = BaseConfig(space.workload().framework, {});
  TrainConfig config = space.WithMicroBatch(base, micro_batch);
  config.checkpoint.every = every;
  return config;
}

History Tried(const Space& space, const FakeDevice& device,
              std::initializer_list<int64_t> micro_batches) {
  History history;
  for (int64_t m : micro_batches) {
    history.push_back(RunTrial(Config(space, m), device, &device));
  }
  return history;
}

Recommendation MustChoose(const Space& space, const History& history) {
  absl::StatusOr<Recommendation> chosen = Choose(space, history);
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  return chosen.value_or(Recommendation{});
}

TEST(Choose, TakesTheFastestThatFitted) {
  Space space = MakeSpace();
  FakeDevice device;  // 22 fit
  Recommendation chosen = MustChoose(space, Tried(space, device, {8, 22, 27, 16}));
  EXPECT_EQ(chosen.best.train_config.micro_batch, 22);
  EXPECT_EQ(chosen.best.evidence, Evidence::kMeasured);
  EXPECT_EQ(chosen.best.differs_in, "");
  EXPECT_EQ(chosen.trials, 4);
  EXPECT_EQ(chosen.out_of_memory_trials, 1);
  ASSERT_EQ(chosen.runners_up.size(), 2u);
  EXPECT_EQ(chosen.runners_up[0].differs_in, "micro-batch 16");
}

TEST(Choose, ShowsFiveRunnersUpEachConfigOnce) {
  Space space = MakeSpace();
  FakeDevice device;
  History history = Tried(space, device, {1, 2, 3, 4, 5, 6, 7, 8, 8, 7});
  Recommendation chosen = MustChoose(space, history);
  EXPECT_EQ(chosen.runners_up.size(), 5u);
  for (const Candidate& candidate : chosen.runners_up) EXPECT_NE(candidate.differs_in, "");
}

TEST(Choose, TakesTheLaterOfTwoTrialsOfOneConfig) {
  Space space = MakeSpace();
  FakeDevice device;
  History history = Tried(space, device, {4, 8, 8});
  history[1].measurement->tokens_per_second = 1e9;
  EXPECT_LT(MustChoose(space, history).best.tokens_per_second, 1e9);
}

TEST(Choose, NamesMemoryOnlyWhenProven) {
  Space space = MakeSpace();
  FakeDevice device;
  Recommendation chosen = MustChoose(space, Tried(space, device, {22, 27}));
  EXPECT_EQ(chosen.limited_by, "memory");
  EXPECT_THAT(chosen.why, HasSubstr("micro-batch 27 runs out of memory"));
  EXPECT_THAT(chosen.why, HasSubstr("activations"));
  EXPECT_EQ(MustChoose(space, Tried(space, device, {16, 27})).limited_by, "budget");
  EXPECT_EQ(MustChoose(space, Tried(space, device, {16})).limited_by, "budget");
}

TEST(Choose, NamesWhatTakesTheTimeWhenLargerIsNoFaster) {
  Space space = MakeSpace();
  FakeDevice device;
  device.slower_over = 8;
  History history = Tried(space, device, {8, 16, 27});
  Recommendation chosen = MustChoose(space, history);
  EXPECT_EQ(chosen.best.train_config.micro_batch, 8);
  EXPECT_EQ(chosen.limited_by, "compute");
  EXPECT_THAT(chosen.why, HasSubstr("micro-batch 16 fits too but is no faster"));
  for (Trial& trial : history) trial.estimate->limited_by = "launch";
  EXPECT_EQ(MustChoose(space, history).limited_by, "launch");
}

TEST(Choose, NamesTheBatchWhenNoneIsLarger) {
  Space space = MakeSpace(Framework::kFused, 16);
  FakeDevice device;
  Recommendation chosen = MustChoose(space, Tried(space, device, {8, 16}));
  EXPECT_EQ(chosen.limited_by, "batch");
  EXPECT_THAT(chosen.why, HasSubstr("global batch of 16"));
}

TEST(Choose, NeverShowsAWeakerEvidenceAsAStronger) {
  Space space = MakeSpace(Framework::kHfSdpa);
  FakeDevice device;
  History history = Tried(space, device, {8});
  EXPECT_EQ(MustChoose(space, history).best.evidence, Evidence::kReplayed);
  history[0].measurement.reset();
  EXPECT_EQ(MustChoose(space, history).best.evidence, Evidence::kPredicted);
}

TEST(Choose, FindsNothingWhereNothingFitted) {
  Space space = MakeSpace();
  FakeDevice device;
  EXPECT_EQ(Choose(space, {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Choose(space, Tried(space, device, {100})).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hbmtune::tuner

// The default designer against devices that its estimates describe well, badly or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/json.h"
#include "tests/tuner/fake_device.h"
#include "tests/tuner/workloads.h"
#include "tuner/search/designer.h"

namespace hbmtune::tuner {
namespace {

struct Study {
  History history;
  const Trial* best = nullptr;

  explicit Study(History trials) : history(std::move(trials)) {
    best = FindBest(Framework::kFused, history);
  }
  Study(const Study&) = delete;

  int OutOfMemory() const {
    return static_cast<int>(std::count_if(history.begin(), history.end(), RanOutOfMemory));
  }
  double Seconds() const {
    double seconds = 0;
    for (const Trial& trial : history) seconds += trial.seconds;
    return seconds;
  }
  // The winner's setting ran out of memory at most a quarter (or the next whole number) above.
  bool LimitIsProven() const {
    int64_t m = best->config.micro_batch;
    for (const Trial& trial : history) {
      if (!RanOutOfMemory(trial)) continue;
      TrainConfig probed = best->config;
      probed.micro_batch = std::max(m + 1, m + m / 4);
      if (RulesOut(trial.config, probed)) return true;
    }
    return false;
  }
};

Space MakeSpace(int64_t global_batch = 0, bool host = true) {
  Workload workload = MakeWorkload(Framework::kFused, "tiny-llama", 1, global_batch);
  return *Space::Create(workload, DeviceFacts{host});
}

Study Probe(const FakeDevice& truth, const FakeDevice* believed, DesignerOptions options = {},
            int64_t global_batch = 0) {
  Estimator estimator = believed ? believed->AsEstimator() : Estimator{};
  auto designer = MakeDesigner("bracket", MakeSpace(global_batch), estimator, options);
  return Study(RunStudy(**designer, truth, believed));
}

// The best of every micro-batch that fits with and without recomputation.
double TrueBest(const FakeDevice& device) {
  double best = 0;
  for (int64_t every : {0, 1}) {
    TrainConfig config;
    config.checkpoint.every = every;
    for (config.micro_batch = 1; config.micro_batch <= 1024; ++config.micro_batch) {
      if (device.Peak(config) <= device.capacity_bytes) {
        best = std::max(best, device.Tokens(config));
      }
    }
  }
  return best;
}

TEST(Bracket, ProvesTheWinnersLimitWithExactEstimates) {
  FakeDevice device;
  Study study = Probe(device, &device);
  ASSERT_NE(study.best, nullptr);
  EXPECT_TRUE(study.LimitIsProven());
  EXPECT_GE(study.OutOfMemory(), 1);
  EXPECT_GE(TokensPerSecond(*study.best), 0.99 * TrueBest(device));
}

TEST(Bracket, TrustsTrialsOverEstimates) {
  FakeDevice truth;
  for (double factor : {0.3, 0.6, 1.7, 4.0}) {
    FakeDevice believed = truth;
    believed.sample_bytes = static_cast<int64_t>(factor * double(truth.sample_bytes));
    Study study = Probe(truth, &believed);
    ASSERT_NE(study.best, nullptr) << factor;
    EXPECT_TRUE(study.LimitIsProven()) << factor;
    EXPECT_GE(TokensPerSecond(*study.best), 0.95 * TrueBest(truth)) << factor;
    EXPECT_LE(study.history.size(), 40u) << factor;
  }
}

TEST(Bracket, FindsWhatFitsThoughEstimatedNotTo) {
  FakeDevice truth;
  FakeDevice pessimist = truth;
  pessimist.capacity_bytes = 50'000;
  Study study = Probe(truth, &pessimist);
  ASSERT_NE(study.best, nullptr);
  EXPECT_TRUE(study.LimitIsProven());
}

TEST(Bracket, WorksWithoutEstimates) {
  FakeDevice device;
  Study study = Probe(device, nullptr, {.budget_trials = 60});
  ASSERT_NE(study.best, nullptr);
  EXPECT_TRUE(study.LimitIsProven());
}

// DESIGN: a study of real probes under 60 s has a real out-of-memory trial and a proven winner.
TEST(Bracket, FindsTheLimitWithinASmallBudget) {
  FakeDevice slow;
  slow.peak_tokens = 2'000;  // 24 sequences of 256 tokens a step: 3 s
  Study study = Probe(slow, &slow, {.budget_seconds = 60});
  ASSERT_NE(study.best, nullptr);
  EXPECT_GE(study.OutOfMemory(), 1);
  EXPECT_TRUE(study.LimitIsProven());
  EXPECT_LE(study.Seconds(), 75);
}

TEST(Bracket, SaysSoWhenTheTimeLeftIsTooShort) {
  FakeDevice slow;
  slow.peak_tokens = 200;  // 24 sequences of 256 tokens a step: 33 s
  DesignerOptions options{.budget_seconds = 60};
  Study study = Probe(slow, &slow, options);
  EXPECT_GE(study.OutOfMemory(), 1);  // the memory's end is met all the same
  EXPECT_FALSE(study.LimitIsProven());
  auto designer = MakeDesigner("bracket", MakeSpace(), slow.AsEstimator(), options);
  EXPECT_THAT((*designer)->Next(study.history).why, testing::HasSubstr("budget"));
}

TEST(Bracket, RunsOutOfMemoryOnceThoughLargerIsSlower) {
  FakeDevice device;
  device.slower_over = 6;
  Study study = Probe(device, &device);
  EXPECT_GE(study.OutOfMemory(), 1);
  EXPECT_LE(study.best->config.micro_batch, 9);
  EXPECT_GE(TokensPerSecond(*study.best), 0.9 * TrueBest(device));
}

TEST(Bracket, KeepsToTheGlobalBatch) {
  FakeDevice device;
  Study study = Probe(device, &device, {}, 12);
  ASSERT_NE(study.best, nullptr);
  EXPECT_EQ(study.best->config.micro_batch * study.best->config.grad_accum, 12);
}

TEST(Bracket, TriesOnlyAFewArmsWhereNothingFits) {
  FakeDevice device;
  device.capacity_bytes = 1'000;
  Study study = Probe(device, &device);
  EXPECT_EQ(study.best, nullptr);
  EXPECT_GE(study.history.size(), 1u);
  EXPECT_LE(study.history.size(), 3u);
}

TEST(Bracket, LeavesAnArmThatFailedForGood) {
  FakeDevice device;
  auto designer = MakeDesigner("bracket", MakeSpace(), device.AsEstimator(), {});
  History history = {RunTrial(*(*designer)->Next({}).config, device, &device)};
  history[0].measurement->outcome = Outcome::kTimeout;
  TrainConfig hung = history[0].config;
  while (history.size() < 100) {
    Decision decision = (*designer)->Next(history);
    if (!decision.config) break;
    TrainConfig at_same = *decision.config;
    at_same.micro_batch = hung.micro_batch;
    EXPECT_NE(ToJson(at_same), ToJson(hung));
    history.push_back(RunTrial(*decision.config, device, &device));
  }
  EXPECT_NE(FindBest(Framework::kFused, history), nullptr);
}

// On a modelled device a trial is the estimate itself.
Study Model(const FakeDevice& device, const Space& space) {
  auto designer = MakeDesigner("bracket", space, device.AsEstimator(), {.modelled = true});
  History history;
  while (history.size() < 100) {
    Decision decision = (*designer)->Next(history);
    if (!decision.config) break;
    history.push_back({*decision.config, device.Estimated(*decision.config), {}, true, 0});
  }
  return Study(std::move(history));
}

TEST(Bracket, NeedsFewTrialsOnAModelledDevice) {
  FakeDevice device;
  Study study = Model(device, MakeSpace(0, /*host=*/false));
  ASSERT_NE(study.best, nullptr);
  EXPECT_TRUE(study.LimitIsProven());
  EXPECT_GE(TokensPerSecond(*study.best), 0.999 * TrueBest(device));
  EXPECT_LE(study.history.size(), 16u);
  EXPECT_GE(study.history.size(), 7u);  // the best and five runners-up, and the proof
}

TEST(Bracket, RecordsTheLeastWhereNothingFitsOnAModelledDevice) {
  FakeDevice device;
  device.capacity_bytes = 1'000;
  Study study = Model(device, MakeSpace(0, /*host=*/false));
  EXPECT_EQ(study.best, nullptr);
  EXPECT_EQ(study.history.size(), 1u);
}

}  // namespace
}  // namespace hbmtune::tuner

#include "tuner/sweep/sweep.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>


namespace hbmtune::tuner {
namespace {

SweptConfig Swept(int64_t bytes, double speed, bool fits = true) {
  SweptConfig swept;
  swept.estimate.peak_used_bytes = bytes;
  swept.estimate.tokens_per_second = speed;
  swept.estimate.fits = fits;
  return swept;
}

TEST(ParetoFront, HoldsWhatNoOtherBeats) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> draw(1, 30);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::pair<int64_t, double>> all;
    ParetoFront front;
    for (int i = 0; i < 60; ++i) {
      all.emplace_back(draw(random), draw(random));
      front.Add(Swept(all.back().first, all.back().second));
    }
    std::set<std::pair<int64_t, double>> expected;
    for (const auto& a : all) {
      bool beaten = false;
      for (const auto& b : all) {
        beaten = beaten || (b != a && b.first <= a.first && b.second >= a.second);
      }
      if (!beaten) expected.insert(a);
    }
    std::set<std::pair<int64_t, double>> held;
    double speed = 1e9;
    for (const SweptConfig& swept : front.Sorted()) {
      held.emplace(swept.estimate.peak_used_bytes, swept.estimate.tokens_per_second);
      EXPECT_LT(swept.estimate.tokens_per_second, speed);
      speed = swept.estimate.tokens_per_second;
    }
    EXPECT_EQ(held, expected);
    EXPECT_EQ(front.size(), expected.size());
  }
}

TEST(ParetoFront, TakesNothingThatDoesNotFit) {
  ParetoFront front;
  EXPECT_FALSE(front.Add(Swept(1, 100, false)));
  EXPECT_EQ(front.size(), 0U);
  EXPECT_TRUE(front.Add(Swept(1, 100)));
  EXPECT_FALSE(front.Add(Swept(1, 100)));
}

Workload Job() {
  Workload workload;
  workload.framework = Framework::kHfSdpa;
  workload.global_batch = 0;
  return workload;
}

TEST(Grid, CombinesEveryValue) {
  auto grid = Grid::Create(Job(), TrainConfig{},
                           {{"micro_batch", Json({1, 2, 4})}, {"checkpoint.every", Json({0, 1})}});
  ASSERT_TRUE(grid.ok()) << grid.status();
  EXPECT_EQ(grid->Count(), 6);
  std::set<std::pair<int64_t, int64_t>> seen;
  grid->ForEach([&](const TrainConfig& config) {
    seen.emplace(config.micro_batch, config.checkpoint.every);
    return true;
  });
  EXPECT_EQ(seen.size(), 6U);
}

TEST(Grid, DerivesAccumulationFromTheGlobalBatch) {
  Workload workload = Job();
  workload.global_batch = 12;
  auto grid = Grid::Create(workload, TrainConfig{}, {{"micro_batch", Json({1, 3, 5})}});
  ASSERT_TRUE(grid.ok());
  std::vector<int64_t> accumulations;
  grid->ForEach([&](const TrainConfig& config) {
    accumulations.push_back(config.grad_accum);
    return true;
  });
  EXPECT_EQ(accumulations, (std::vector<int64_t>{12, 4, 1}));  // 5 does not divide it
}

TEST(Grid, NamesWhatIsNoTunableAndNoValue) {
  auto unknown = Grid::Create(Job(), TrainConfig{}, {{"zero.stag", Json(1)}});
  EXPECT_NE(unknown.status().message().find("zero.stag"), std::string::npos);
  auto wrong = Grid::Create(Job(), TrainConfig{}, {{"zero.stage", Json("two")}});
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  auto range = Grid::Create(Job(), TrainConfig{}, {{"micro_batch", Json{{"min", 1}}}});
  EXPECT_NE(range.status().message().find("not a range"), std::string::npos);
}

absl::StatusOr<Estimate> ByMicroBatch(const TrainConfig& config) {
  if (config.micro_batch % 10 == 0) return absl::InvalidArgumentError("a tenth");
  Estimate estimate;
  estimate.fits = true;
  estimate.peak_used_bytes = config.micro_batch;
  return estimate;
}

ConfigSource Numbers(int64_t count, std::atomic<int64_t>* visited = nullptr) {
  return [=](const Visitor& visit) {
    for (int64_t i = 1; i <= count; ++i) {
      TrainConfig config;
      config.micro_batch = i;
      if (visited != nullptr) ++*visited;
      if (!visit(config)) return;
    }
  };
}

TEST(EstimateAll, HandsOverEachOnceWithItsEstimate) {
  for (size_t threads : {1, 3}) {
    std::set<int64_t> seen;
    int64_t refused = 0;
    EstimateAll(Numbers(1003), ByMicroBatch, threads,
                [&](const TrainConfig& config, const absl::StatusOr<Estimate>& estimate) {
                  EXPECT_TRUE(seen.insert(config.micro_batch).second);
                  if (estimate.ok()) {
                    EXPECT_EQ(estimate->peak_used_bytes, config.micro_batch);
                  } else {
                    ++refused;
                  }
                  return true;
                });
    EXPECT_EQ(seen.size(), 1003U);
    EXPECT_EQ(refused, 100);
  }
}

TEST(EstimateAll, StopsWhenNobodyTakesMoreAndKeepsLittleWaiting) {
  std::atomic<int64_t> visited = 0;
  int64_t taken = 0;
  EstimateAll(Numbers(1'000'000, &visited), ByMicroBatch, 2,
              [&](const TrainConfig&, const absl::StatusOr<Estimate>&) { return ++taken < 50; });
  EXPECT_EQ(taken, 50);
  EXPECT_LT(visited, 2000);
}

}  // namespace
}  // namespace hbmtune::tuner

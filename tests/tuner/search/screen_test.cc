#include "tuner/search/screen.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/tuner/fake_device.h"
#include "tests/tuner/workloads.h"

namespace hbmtune::tuner {
namespace {

// Estimates by the device, counted.
struct Counted {
  FakeDevice device;
  std::shared_ptr<int> calls = std::make_shared<int>(0);

  Estimator AsEstimator() const {
    return [device = device, calls = calls](const TrainConfig& c) -> absl::StatusOr<Estimate> {
      ++*calls;
      return device.Estimated(c);
    };
  }
};

Space ManySettings() {
  return *Space::Create(MakeWorkload(Framework::kFused, "gpt2-xl", 8), DeviceFacts{});
}

// The fastest arm that exhaustive estimation finds.
double ExhaustiveBest(const Space& space, const FakeDevice& device) {
  EstimateCache estimates(device.AsEstimator());
  double best = 0;
  for (const TrainConfig& setting : space.Settings()) {
    best = std::max(best, MakeArm(space, setting, estimates).tokens_per_second);
  }
  return best;
}

TEST(Screen, FindsTheBestArmWithFewEstimates) {
  Space space = ManySettings();
  for (int64_t sample_bytes : {5'000, 40'000, 300'000, 900'000}) {
    Counted counted;
    counted.device.sample_bytes = sample_bytes;
    EstimateCache estimates(counted.AsEstimator());
    std::vector<Arm> arms = Screen(space, estimates, 1);
    EXPECT_NEAR(arms.front().tokens_per_second, ExhaustiveBest(space, counted.device), 1e-6)
        << sample_bytes;
    EXPECT_LT(*counted.calls, 400) << "of " << space.Settings().size() << " settings";
  }
}

TEST(Screen, PutsFirstWhatNeedsLeastWhereNothingFits) {
  Space space = ManySettings();
  FakeDevice device;
  device.capacity_bytes = 1;
  EstimateCache estimates(device.AsEstimator());
  std::vector<Arm> arms = Screen(space, estimates, 1);
  EXPECT_EQ(arms.front().guess, 0);
  EXPECT_NE(arms.front().setting.offload.optimizer, OptimizerOffload::kNone);
  for (const Arm& arm : arms) EXPECT_GE(arm.least_bytes, arms.front().least_bytes);
}

TEST(Screen, CorrectsTheLimitByWhatTrialsMeasured) {
  Space space = ManySettings();
  FakeDevice device;
  EstimateCache estimates(device.AsEstimator());
  TrainConfig setting = BaseConfig(Framework::kFused, {});
  EXPECT_EQ(MakeArm(space, setting, estimates).guess, 22);       // 100 kB + 22 × 40 kB
  EXPECT_EQ(MakeArm(space, setting, estimates, 0.5).guess, 47);  // half of that a micro-batch
  for (int64_t hint : {1, 5, 21, 22, 23, 500, 1024}) {
    EXPECT_EQ(MakeArm(space, setting, estimates, 1, hint).guess, 22) << hint;
  }
}

TEST(Explore, AsksForEachSettingOnce) {
  Space space = ManySettings();
  std::vector<TrainConfig> settings = space.Settings();
  std::set<size_t> asked;
  Explore(settings, [&](size_t i) {
    EXPECT_TRUE(asked.insert(i).second);
    return double(i % 7);
  });
  EXPECT_LT(asked.size(), settings.size());
  settings.resize(10);
  asked.clear();
  Explore(settings, [&](size_t i) {
    asked.insert(i);
    return 0.0;
  });
  EXPECT_EQ(asked.size(), 10u);
}

}  // namespace
}  // namespace hbmtune::tuner

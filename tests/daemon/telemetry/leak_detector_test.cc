#include "daemon/telemetry/leak_detector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace hbmtune {
namespace {

constexpr double kFloorBytes = 40e9;
constexpr double kSigma = 0.005;
constexpr double kRho = 0.5;

// A floor with AR(1) noise; steps advance by 1 to `largest_gap`.
class Series {
 public:
  Series(uint64_t seed, int largest_gap, std::function<double(int64_t)> shape)
      : random_(seed), gap_(1, largest_gap), shape_(std::move(shape)) {}

  // Feeds steps up to `steps`; returns the alarms.
  int Feed(LeakDetector& detector, int64_t steps) {
    int alarms = 0;
    std::normal_distribution<double> innovation(0, kSigma * std::sqrt(1 - kRho * kRho));
    while (step_ < steps) {
      step_ += gap_(random_);
      noise_ = kRho * noise_ + innovation(random_);
      double bytes = kFloorBytes * (shape_(step_) + noise_);
      if (detector.Add(step_, static_cast<int64_t>(bytes))) ++alarms;
    }
    return alarms;
  }

 private:
  std::mt19937_64 random_;
  std::uniform_int_distribution<int> gap_;
  std::function<double(int64_t)> shape_;
  int64_t step_ = 0;
  double noise_ = 0;
};

int Alarms(uint64_t seed, int64_t steps, const std::function<double(int64_t)>& shape) {
  LeakDetector detector;
  return Series(seed, 1 + static_cast<int>(seed % 3), shape).Feed(detector, steps);
}

// How many of 100 series raise an alarm within `steps`.
int Found(int64_t steps, const std::function<double(int64_t)>& shape) {
  int found = 0;
  for (uint64_t seed = 9000; seed < 9100; ++seed) found += Alarms(seed, steps, shape) > 0;
  return found;
}

TEST(LeakDetector, RaisesAtMostOneAlarmInTenThousandLeakFreeSteps) {
  int alarms = 0;
  for (uint64_t seed = 5000; seed < 5100; ++seed) {
    alarms += Alarms(seed, 10'000, [](int64_t) { return 1.0; });
  }
  EXPECT_LE(alarms, 1) << "in 100 series of 10,000 steps";
}

TEST(LeakDetector, FindsATenthOfAPercentAStepWithin200Steps) {
  EXPECT_GE(Found(200, [](int64_t step) { return 1 + 0.001 * static_cast<double>(step); }), 95);
}

TEST(LeakDetector, FindsAStaircaseWithin200Steps) {
  auto stairs = [](int64_t step) { return 1 + 0.05 * static_cast<double>(step / 50); };
  EXPECT_GE(Found(200, stairs), 95);
}

TEST(LeakDetector, FindsALeakThatBeginsLate) {
  auto late = [](int64_t step) {
    return 1 + 0.001 * static_cast<double>(std::max<int64_t>(0, step - 3000));
  };
  EXPECT_GE(Found(3200, late), 95);
}

TEST(LeakDetector, TakesNoSawtoothForALeak) {
  for (int64_t period : {7, 30, 64, 100, 150}) {
    auto sawtooth = [period](int64_t step) {
      return 1 + 0.1 * static_cast<double>(step % period) / static_cast<double>(period);
    };
    EXPECT_EQ(Found(2000, sawtooth), 0) << "period " << period;
  }
}

TEST(LeakDetector, TakesNoWarmUpForALeak) {
  for (double steps : {5.0, 20.0, 50.0}) {
    auto warm_up = [steps](int64_t step) {
      return 1.3 - 0.3 * std::exp(-static_cast<double>(step) / steps);
    };
    EXPECT_EQ(Found(2000, warm_up), 0) << "time constant " << steps;
  }
}

TEST(LeakDetector, TakesNoCacheThatGrowsOnceForALeak) {
  for (int64_t at : {10, 120, 500}) {
    EXPECT_EQ(Found(2000, [at](int64_t step) { return step < at ? 1.0 : 1.2; }), 0);
  }
}

TEST(LeakDetector, SaysHowFastItGrows) {
  LeakDetector detector;
  std::optional<Leak> leak;
  for (int64_t step = 1; step <= 200 && !leak; ++step) {
    leak = detector.Add(step, 1'000'000'000 + step * 1'000'000);
  }
  ASSERT_TRUE(leak);
  EXPECT_NEAR(leak->bytes_per_step, 1e6, 1e4);
}

TEST(LeakDetector, StartsAnewWhenTheJobDoes) {
  LeakDetector detector;
  for (int64_t step = 1; step <= 150; ++step) {
    detector.Add(step, 1'000'000'000 + step * 1'000'000);
  }
  EXPECT_FALSE(detector.Add(1, 1'000'000'000));
  for (int64_t step = 2; step <= 100; ++step) {
    EXPECT_FALSE(detector.Add(step, 1'000'000'000 + step * 1'000'000));
  }
}

}  // namespace
}  // namespace hbmtune

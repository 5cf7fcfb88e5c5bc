#include "tuner/predict/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/core/units.h"
#include "kernels/model/presets.h"

namespace hbmtune {
namespace {

Workload Job(Framework framework) {
  Workload workload;
  workload.model = *FindPreset("gpt2");
  workload.seq_len = 256;
  workload.framework = framework;
  return workload;
}

TrainConfig Config(int64_t grad_accum = 1) {
  TrainConfig config;
  config.param_dtype = config.compute_dtype = config.optimizer_state_dtype = Dtype::kBf16;
  config.micro_batch = 2;
  config.grad_accum = grad_accum;
  return config;
}

class TimelineOf : public testing::TestWithParam<Framework> {};

TEST_P(TimelineOf, HasTheEstimatesPeakAndOwners) {
  const auto profile = *device::FindProfile("mi210");
  const Workload workload = Job(GetParam());
  for (int64_t grad_accum : {1, 2, 5}) {
    const TrainConfig config = Config(grad_accum);
    const auto estimate = Predict(workload, config, profile, {});
    const auto timeline = PredictTimeline(workload, config, profile, {}, 500);
    ASSERT_TRUE(estimate.ok() && timeline.ok()) << timeline.status();
    int64_t allocated = 0, reserved = 0;
    double last = 0;
    for (const TimelinePoint& point : timeline->points) {
      ASSERT_EQ(point.category_bytes.size(), timeline->categories.size());
      EXPECT_EQ(std::accumulate(point.category_bytes.begin(), point.category_bytes.end(),
                                int64_t{0}),
                point.allocated_bytes);
      EXPECT_LE(point.allocated_bytes, point.reserved_bytes);
      EXPECT_GE(point.seconds, last);
      last = point.seconds;
      allocated = std::max(allocated, point.allocated_bytes);
      reserved = std::max(reserved, point.reserved_bytes);
    }
    EXPECT_EQ(allocated, estimate->peak_allocated_bytes);
    EXPECT_EQ(reserved, estimate->peak_reserved_bytes);
    EXPECT_LE(timeline->points.size(), 500U);
    EXPECT_LE(last, timeline->step_seconds);
    EXPECT_EQ(timeline->drawn_micro_steps, std::min<int64_t>(grad_accum, 2));
    if (grad_accum <= 2) {
      EXPECT_NEAR(timeline->step_seconds, estimate->step_seconds, 0.01 * estimate->step_seconds);
    }
  }
}

TEST_P(TimelineOf, PhasesFollowEachOtherToTheEnd) {
  const auto timeline =
      PredictTimeline(Job(GetParam()), Config(), *device::FindProfile("mi210"), {}, 100);
  ASSERT_TRUE(timeline.ok());
  ASSERT_GE(timeline->phases.size(), 3U);
  EXPECT_EQ(timeline->phases.front().name, "forward");
  double at = timeline->phases.front().begin_seconds;
  for (const TimelinePhase& phase : timeline->phases) {
    EXPECT_EQ(phase.begin_seconds, at);
    EXPECT_GE(phase.end_seconds, at);
    at = phase.end_seconds;
  }
  EXPECT_EQ(at, timeline->step_seconds);
}

INSTANTIATE_TEST_SUITE_P(Frameworks, TimelineOf,
                         testing::Values(Framework::kFused, Framework::kHfSdpa),
                         [](const auto& info) {
                           return info.param == Framework::kFused ? "Fused" : "Transformers";
                         });

TEST(Timeline, AlsoWithExpandableSegments) {
  TrainConfig config = Config();
  config.allocator.expandable_segments = true;
  const auto profile = *device::FindProfile("mi210");
  const auto estimate = Predict(Job(Framework::kHfSdpa), config, profile, {});
  const auto timeline = PredictTimeline(Job(Framework::kHfSdpa), config, profile, {}, 100);
  ASSERT_TRUE(estimate.ok() && timeline.ok()) << estimate.status() << timeline.status();
  EXPECT_EQ(timeline->first_step_peak_bytes, estimate->peak_allocated_bytes);
}

TEST(Timeline, ThinnedKeepsBothPeaks) {
  const auto profile = *device::FindProfile("mi210");
  const auto whole = PredictTimeline(Job(Framework::kHfSdpa), Config(), profile, {}, 10'000);
  const auto thin = PredictTimeline(Job(Framework::kHfSdpa), Config(), profile, {}, 20);
  ASSERT_TRUE(whole.ok() && thin.ok());
  EXPECT_GT(whole->points.size(), 200U);
  EXPECT_LE(thin->points.size(), 20U);
  const auto most = [](const StepTimeline& t) {
    return std::max_element(t.points.begin(), t.points.end(), [](const auto& a, const auto& b) {
             return a.allocated_bytes < b.allocated_bytes;
           })->allocated_bytes;
  };
  EXPECT_EQ(most(*whole), most(*thin));
}

}  // namespace
}  // namespace hbmtune

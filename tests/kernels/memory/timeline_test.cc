#include "kernels/memory/timeline.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/core/units.h"
#include "kernels/memory/modelled_source.h"

namespace hbmtune::memory {
namespace {

class TimelineTest : public testing::Test {
 protected:
  void SetUp() override { allocator_.AddObserver(&timeline_); }

  double now_ = 0;
  ModelledSource source_{64 * kGiB};
  EventsAtOnce events_;
  CachingAllocator allocator_{{}, source_, events_};
  Timeline timeline_{[this] { return now_; }};
};

TEST_F(TimelineTest, FollowsTheAllocator) {
  timeline_.Mark("forward");
  Block* weights = allocator_.Allocate(30 * kMiB, Category::kWeights);
  now_ = 1.5;
  timeline_.Mark("backward");
  Block* activation = allocator_.Allocate(kMiB, Category::kActivations);
  allocator_.Free(weights);
  allocator_.Free(activation);

  auto samples = timeline_.Samples();
  ASSERT_EQ(samples.size(), 6u);  // two segments, two allocations, two frees
  EXPECT_EQ(samples[0].reserved_bytes, 30 * kMiB);
  EXPECT_EQ(samples[0].allocated_bytes, 0);
  EXPECT_EQ(samples[3].allocated_bytes, 31 * kMiB);
  EXPECT_EQ(samples[3].reserved_bytes, 32 * kMiB);
  EXPECT_EQ(samples[3].by_category[static_cast<size_t>(Category::kWeights)], 30 * kMiB);
  EXPECT_EQ(samples[3].seconds, 1.5);
  EXPECT_EQ(samples[5].allocated_bytes, 0);
  ASSERT_EQ(timeline_.phases().size(), 2u);
  EXPECT_EQ(timeline_.phases()[1].label, "backward");
  EXPECT_EQ(timeline_.phases()[1].seconds, 1.5);
}

TEST_F(TimelineTest, KeepsThePeaksWhenItIsThinned) {
  std::vector<Block*> live;
  for (int64_t i = 0; i < 1000; ++i) {
    live.push_back(allocator_.Allocate((i * 37 % 101) * 10 * kKiB, Category::kActivations));
    if (i % 3 == 0) {
      allocator_.Free(live[i / 2]);
      live[i / 2] = nullptr;
    }
    if (i == 700) allocator_.EmptyCache();
    now_ += 1e-3;
  }
  auto thin = timeline_.Samples(50);
  EXPECT_LE(thin.size(), 50u);
  int64_t allocated = 0, reserved = 0;
  for (const auto& sample : thin) {
    allocated = std::max(allocated, sample.allocated_bytes);
    reserved = std::max(reserved, sample.reserved_bytes);
    EXPECT_EQ(std::accumulate(sample.by_category.begin(), sample.by_category.end(), int64_t{0}),
              sample.allocated_bytes);
  }
  EXPECT_EQ(allocated, allocator_.statistics().allocated_bytes.all.peak);
  EXPECT_EQ(reserved, allocator_.statistics().reserved_bytes.all.peak);
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end(), [](const auto& a, const auto& b) {
    return a.seconds < b.seconds;
  }));
}

TEST_F(TimelineTest, StopsWhenRemoved) {
  allocator_.RemoveObserver(&timeline_);
  allocator_.Allocate(1, Category::kWeights);
  EXPECT_TRUE(timeline_.Samples().empty());
}

}  // namespace
}  // namespace hbmtune::memory

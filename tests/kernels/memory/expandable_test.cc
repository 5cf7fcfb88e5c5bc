#include <gtest/gtest.h>

#include "kernels/core/error.h"
#include "kernels/core/units.h"
#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/modelled_source.h"

namespace hbmtune::memory {
namespace {

constexpr Category kAny = Category::kActivations;

class ExpandableTest : public testing::Test {
 protected:
  ModelledSource source_{200 * kMiB};
  EventsOnWait events_;
  CachingAllocator allocator_{AllocatorConfig::Parse("expandable_segments:True"), source_, events_};
};

TEST_F(ExpandableTest, MapsWholePagesForTheRoundedRequest) {
  allocator_.Allocate(100, kAny);
  EXPECT_EQ(allocator_.reserved_bytes(), 2 * kMiB);
  allocator_.Allocate(21 * kMiB, kAny);
  EXPECT_EQ(allocator_.reserved_bytes(), 42 * kMiB);
  EXPECT_EQ(allocator_.statistics().segment.all.current, 0);
  EXPECT_EQ(allocator_.statistics().inactive_split_bytes.all.current, 0);
  EXPECT_EQ(allocator_.statistics().num_device_alloc, 2);
}

TEST_F(ExpandableTest, GrowsTheSegmentWhereALargerRequestWouldNotFit) {
  Block* a = allocator_.Allocate(35 * kMiB, kAny);
  allocator_.Free(a);
  Block* b = allocator_.Allocate(45 * kMiB, kAny);
  EXPECT_EQ(allocator_.reserved_bytes(), 60 * kMiB);
  EXPECT_EQ(b->address, allocator_.segments()->address);
}

TEST_F(ExpandableTest, SplitsFromHalfAKibibyteOn) {
  Block* block = allocator_.Allocate(19 * kMiB + 512, kAny);
  EXPECT_EQ(block->bytes, 19 * kMiB + 512);
  EXPECT_EQ(block->next->bytes, kMiB - 512);
}

TEST_F(ExpandableTest, UnmapsFreePagesUnderPressureAndMapsThemAgainLater) {
  Block* a = allocator_.Allocate(40 * kMiB, kAny);
  Block* b = allocator_.Allocate(10 * kMiB, kAny);
  Address start = a->address;
  allocator_.Free(a);
  // 200 − 60 MiB are left: the 40 of `a` have to move to the end.
  Block* c = allocator_.Allocate(165 * kMiB, kAny);
  EXPECT_GT(c->address, b->address);
  EXPECT_EQ(allocator_.statistics().num_alloc_retries, 1);
  EXPECT_LE(allocator_.reserved_bytes(), 200 * kMiB);
  allocator_.Free(c);
  allocator_.EmptyCache();
  EXPECT_EQ(allocator_.Allocate(40 * kMiB, kAny)->address, start);
}

TEST_F(ExpandableTest, GivesTheAddressesBackWhenNothingIsLeft) {
  allocator_.Free(allocator_.Allocate(40 * kMiB, kAny));
  allocator_.EmptyCache();
  EXPECT_EQ(allocator_.reserved_bytes(), 0);
  EXPECT_EQ(allocator_.segments(), nullptr);
  EXPECT_EQ(source_.free_bytes(), 200 * kMiB);
}

TEST_F(ExpandableTest, FailsCleanlyWhenPagesAreMissing) {
  allocator_.Allocate(120 * kMiB, kAny);
  EXPECT_THROW(allocator_.Allocate(100 * kMiB, kAny), OutOfMemory);
  EXPECT_EQ(allocator_.reserved_bytes(), 120 * kMiB);
  EXPECT_NO_THROW(allocator_.Allocate(80 * kMiB, kAny));
}

}  // namespace
}  // namespace hbmtune::memory

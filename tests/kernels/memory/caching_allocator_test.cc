#include "kernels/memory/caching_allocator.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/core/error.h"
#include "kernels/core/units.h"
#include "kernels/memory/modelled_source.h"

namespace hbmtune::memory {
namespace {

constexpr Category kAny = Category::kActivations;

// A device of 64 GiB with the default settings.
class CachingAllocatorTest : public testing::Test {
 protected:
  ModelledSource source_{64 * kGiB};
  EventsOnWait events_;
  CachingAllocator allocator_{AllocatorConfig{}, source_, events_};
};

TEST_F(CachingAllocatorTest, PacksRequestsUpToOneMebibyteInSegmentsOfTwo) {
  Block* block = allocator_.Allocate(1048576, kAny);
  EXPECT_EQ(block->bytes, 1048576);
  EXPECT_EQ(allocator_.reserved_bytes(), 2 * kMiB);
  Block* second = allocator_.Allocate(1048576, kAny);
  EXPECT_EQ(second->address, block->address + kMiB);
  EXPECT_EQ(allocator_.reserved_bytes(), 2 * kMiB);
}

TEST_F(CachingAllocatorTest, SplitsASegmentOfTwentyForRequestsUnderTen) {
  Block* block = allocator_.Allocate(1048577, kAny);
  EXPECT_EQ(block->bytes, 1049088);
  EXPECT_EQ(allocator_.reserved_bytes(), 20 * kMiB);
  EXPECT_EQ(allocator_.statistics().inactive_split_bytes.all.current, 20 * kMiB - 1049088);

  Block* nearly_ten = allocator_.Allocate(10485759, kAny);
  EXPECT_EQ(allocator_.reserved_bytes(), 20 * kMiB);
  EXPECT_EQ(nearly_ten->address, block->address + block->bytes);
}

TEST_F(CachingAllocatorTest, RoundsSegmentsFromTenMebibytesOnToTwo) {
  allocator_.Allocate(10485760, kAny);
  EXPECT_EQ(allocator_.reserved_bytes(), 10 * kMiB);
  Block* block = allocator_.Allocate(10485761, kAny);
  EXPECT_EQ(allocator_.reserved_bytes(), 22 * kMiB);
  EXPECT_EQ(block->bytes, 10486272);
  EXPECT_EQ(block->next->bytes, 2096640);
}

TEST_F(CachingAllocatorTest, KeepsSlackUpToOneMebibyteWithTheBlock) {
  Block* block = allocator_.Allocate(21 * kMiB, kAny);
  EXPECT_EQ(block->bytes, 22 * kMiB);
  EXPECT_EQ(allocator_.allocated_bytes(), 22 * kMiB);
  EXPECT_EQ(allocator_.statistics().requested_bytes.all.current, 21 * kMiB);
}

TEST_F(CachingAllocatorTest, GivesNothingForZeroBytes) {
  EXPECT_EQ(allocator_.Allocate(0, kAny), nullptr);
  allocator_.Free(nullptr);
  EXPECT_EQ(allocator_.statistics().allocation.all.allocated, 0);
}

TEST_F(CachingAllocatorTest, RefusesNegativeSizesAndUnknownStreams) {
  EXPECT_THROW(allocator_.Allocate(-1, kAny), std::invalid_argument);
  EXPECT_THROW(allocator_.Allocate(1, kAny, 64), std::invalid_argument);
  EXPECT_THROW(allocator_.RecordStream(nullptr, -1), std::invalid_argument);
}

TEST_F(CachingAllocatorTest, TakesTheSmallestBlockThatFits) {
  Block* large = allocator_.Allocate(30 * kMiB, kAny);
  Block* small = allocator_.Allocate(24 * kMiB, kAny);
  Address smallest = small->address;
  allocator_.Free(large);
  allocator_.Free(small);
  EXPECT_EQ(allocator_.Allocate(23 * kMiB, kAny)->address, smallest);
}

// Two free blocks of 24 MiB: the one at the lower address has the younger segment.
TEST_F(CachingAllocatorTest, BreaksTiesByAgeOfTheSegmentOrByAddress) {
  for (AllocatorRules rules :
       {AllocatorRules::kCurrent, AllocatorRules::kTorch2_10, AllocatorRules::kTorch2_9}) {
    allocator_.Reset(AllocatorConfig::Parse("", rules));
    Block* first = allocator_.Allocate(24 * kMiB, kAny);
    Block* older = allocator_.Allocate(24 * kMiB, kAny);
    Address low = first->address, high = older->address;
    allocator_.Free(first);
    allocator_.EmptyCache();
    Block* younger = allocator_.Allocate(24 * kMiB, kAny);
    ASSERT_EQ(younger->address, low);
    allocator_.Free(older);
    allocator_.Free(younger);
    Address expected = rules == AllocatorRules::kCurrent ? high : low;
    EXPECT_EQ(allocator_.Allocate(24 * kMiB, kAny)->address, expected) << Name(rules);
  }
}

TEST_F(CachingAllocatorTest, ReusesMemoryOnTheSameStreamOnly) {
  Block* block = allocator_.Allocate(30 * kMiB, kAny, 0);
  Address address = block->address;
  allocator_.Free(block);
  EXPECT_NE(allocator_.Allocate(30 * kMiB, kAny, 1)->address, address);
  EXPECT_EQ(allocator_.Allocate(30 * kMiB, kAny, 0)->address, address);
}

TEST_F(CachingAllocatorTest, JoinsFreeNeighbours) {
  Block* a = allocator_.Allocate(4 * kMiB, kAny);
  Block* b = allocator_.Allocate(4 * kMiB, kAny);
  Block* c = allocator_.Allocate(4 * kMiB, kAny);
  Address start = a->address;
  allocator_.Free(a);
  allocator_.Free(c);
  EXPECT_EQ(allocator_.statistics().inactive_split.all.current, 2);  // c joined the rest
  allocator_.Free(b);
  EXPECT_EQ(allocator_.statistics().inactive_split.all.current, 0);
  EXPECT_EQ(allocator_.segments()->first->bytes, 20 * kMiB);
  EXPECT_EQ(allocator_.segments()->first->address, start);
}

TEST_F(CachingAllocatorTest, HoldsBackBlocksThatAnotherStreamStillUses) {
  Block* block = allocator_.Allocate(30 * kMiB, kAny, 0);
  Address address = block->address;
  allocator_.RecordStream(block, 3);
  allocator_.RecordStream(block, 0);  // its own stream: nothing to wait for
  allocator_.Free(block);
  EXPECT_EQ(allocator_.allocated_bytes(), 0);
  EXPECT_EQ(allocator_.statistics().active_bytes.all.current, 30 * kMiB);
  Block* other = allocator_.Allocate(30 * kMiB, kAny, 0);
  EXPECT_NE(other->address, address);
  events_.Progress(3);
  EXPECT_EQ(allocator_.Allocate(30 * kMiB, kAny, 0)->address, address);
}

TEST_F(CachingAllocatorTest, EmptyCacheGivesUnusedSegmentsBack) {
  Block* big = allocator_.Allocate(30 * kMiB, kAny);
  Block* kept = allocator_.Allocate(2 * kMiB, kAny);
  Block* waiting = allocator_.Allocate(40 * kMiB, kAny);
  allocator_.RecordStream(waiting, 1);
  allocator_.Free(big);
  allocator_.Free(waiting);
  EXPECT_EQ(allocator_.reserved_bytes(), 90 * kMiB);
  allocator_.EmptyCache();
  EXPECT_EQ(allocator_.reserved_bytes(), 20 * kMiB);
  EXPECT_EQ(source_.free_bytes(), 64 * kGiB - 20 * kMiB);
  allocator_.Free(kept);
}

TEST_F(CachingAllocatorTest, RemembersWhoHeldTheMemoryAtThePeak) {
  Block* weights = allocator_.Allocate(100 * kMiB, Category::kWeights);
  Block* activation = allocator_.Allocate(50 * kMiB, Category::kActivations);
  allocator_.Free(activation);
  allocator_.Allocate(20 * kMiB, Category::kGradients);
  AllocatedPeak peak = allocator_.allocated_peak();
  EXPECT_EQ(peak.bytes, 150 * kMiB);
  EXPECT_EQ(peak.allocation, 2);
  EXPECT_EQ(peak.by_category[static_cast<size_t>(Category::kActivations)], 50 * kMiB);
  EXPECT_EQ(peak.by_category[static_cast<size_t>(Category::kGradients)], 0);

  allocator_.ResetPeak();
  EXPECT_EQ(allocator_.allocated_peak().bytes, 120 * kMiB);
  allocator_.Allocate(20 * kMiB, Category::kGradients);
  EXPECT_EQ(allocator_.allocated_peak().bytes, 140 * kMiB);
  EXPECT_EQ(allocator_.allocated_peak().allocation, 4);
  allocator_.Free(weights);
  const ByCategory& now = allocator_.allocated_by_category();
  EXPECT_EQ(std::accumulate(now.begin(), now.end(), int64_t{0}), allocator_.allocated_bytes());
}

TEST_F(CachingAllocatorTest, ResetGivesEverythingBackAndStartsAnew) {
  Block* block = allocator_.Allocate(30 * kMiB, kAny, 2);
  allocator_.RecordStream(block, 1);
  allocator_.Free(block);
  allocator_.Allocate(100, kAny);
  allocator_.Reset(AllocatorConfig::Parse("expandable_segments:True"));
  EXPECT_EQ(source_.free_bytes(), 64 * kGiB);
  EXPECT_EQ(allocator_.statistics(), AllocatorStatistics());
  allocator_.Allocate(100, kAny);
  EXPECT_TRUE(allocator_.segments()->expandable());
}

TEST_F(CachingAllocatorTest, NamesItsStatisticsAsPyTorchDoes) {
  allocator_.Allocate(600, kAny);
  auto flat = allocator_.statistics().Flatten();
  auto value = [&](const std::string& name) {
    for (const auto& [key, figure] : flat) {
      if (key == name) return figure;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(value("allocated_bytes.all.peak"), 1024);
  EXPECT_EQ(value("requested_bytes.small_pool.current"), 600);
  EXPECT_EQ(value("segment.large_pool.allocated"), 0);
  EXPECT_EQ(value("num_device_alloc"), 1);
  EXPECT_EQ(flat.size(), 9 * 3 * 4 + 2 * 4 + 7);
}

}  // namespace
}  // namespace hbmtune::memory

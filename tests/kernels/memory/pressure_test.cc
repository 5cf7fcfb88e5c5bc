// What the allocator does when the driver has no more memory, or a limit is reached.

#include <gtest/gtest.h>

#include "kernels/core/error.h"
#include "kernels/core/units.h"
#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/modelled_source.h"

namespace hbmtune::memory {
namespace {

constexpr Category kAny = Category::kActivations;

TEST(Pressure, ReleasesTheCacheAndTriesAgain) {
  ModelledSource source(100 * kMiB);
  EventsOnWait events;
  CachingAllocator allocator({}, source, events);
  Block* old = allocator.Allocate(60 * kMiB, kAny);
  allocator.RecordStream(old, 1);
  allocator.Free(old);
  EXPECT_EQ(allocator.Allocate(80 * kMiB, kAny)->bytes, 80 * kMiB);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 1);
  EXPECT_EQ(allocator.statistics().num_sync_all_streams, 1);
  EXPECT_EQ(allocator.reserved_bytes(), 80 * kMiB);
}

TEST(Pressure, SaysWhatWasAskedForAndWhatThereWas) {
  ModelledSource source(100 * kMiB);
  EventsOnWait events;
  CachingAllocator allocator({}, source, events);
  allocator.Allocate(90 * kMiB, kAny);
  try {
    allocator.Allocate(3 * kMiB, kAny);
    FAIL() << "a segment of 20 MiB does not fit in 10";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.shortage().requested_bytes, 3 * kMiB);
    EXPECT_EQ(error.shortage().segment_bytes, 20 * kMiB);
    EXPECT_EQ(error.shortage().free_bytes, 10 * kMiB);
    EXPECT_EQ(error.shortage().reserved_bytes, 90 * kMiB);
  }
  EXPECT_EQ(allocator.statistics().num_ooms, 1);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 1);
  EXPECT_EQ(allocator.allocated_bytes(), 90 * kMiB);
  EXPECT_NO_THROW(allocator.Allocate(kMiB, kAny)) << "the allocator works on after the failure";
}

TEST(Pressure, KeepsWithinTheFractionWithoutAskingTheDriver) {
  ModelledSource source(100 * kMiB);
  EventsOnWait events;
  CachingAllocator allocator(AllocatorConfig::Parse("per_process_memory_fraction:0.5"), source,
                             events);
  EXPECT_NO_THROW(allocator.Allocate(48 * kMiB, kAny));
  try {
    allocator.Allocate(4 * kMiB, kAny);
    FAIL() << "50 MiB are allowed";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.shortage().free_bytes, 2 * kMiB);
    EXPECT_EQ(error.shortage().capacity_bytes, 50 * kMiB);
  }
  EXPECT_NO_THROW(allocator.Allocate(1, kAny));
}

TEST(Pressure, RefusesASingleSegmentOverTheLimitOfTheSource) {
  ModelledSource source(100 * kMiB, 40 * kMiB);
  EventsOnWait events;
  CachingAllocator allocator({}, source, events);
  EXPECT_THROW(allocator.Allocate(50 * kMiB, kAny), OutOfMemory);
  EXPECT_NO_THROW(allocator.Allocate(40 * kMiB, kAny));
}

// The index of free blocks ends at 512 TiB; such a request once read past it.
TEST(Pressure, RefusesWhatNoIndexOfBlocksHolds) {
  ModelledSource source(100 * kMiB);
  EventsOnWait events;
  CachingAllocator allocator({}, source, events);
  allocator.Free(allocator.Allocate(30 * kMiB, kAny));
  for (int shift = 44; shift < 62; ++shift) {
    EXPECT_THROW(allocator.Allocate(int64_t{1} << shift, kAny), OutOfMemory) << shift;
  }
}

TEST(Pressure, NeverSplitsOversizeBlocks) {
  ModelledSource source(10 * kGiB);
  EventsOnWait events;
  CachingAllocator allocator(AllocatorConfig::Parse("max_split_size_mb:100"), source, events);
  Block* big = allocator.Allocate(200 * kMiB, kAny);
  Address address = big->address;
  allocator.Free(big);
  // Small requests may not take it, large ones only with less than 20 MiB of slack.
  EXPECT_NE(allocator.Allocate(50 * kMiB, kAny)->address, address);
  EXPECT_NE(allocator.Allocate(180 * kMiB, kAny)->address, address);
  Block* nearly = allocator.Allocate(182 * kMiB, kAny);
  EXPECT_EQ(nearly->address, address);
  EXPECT_EQ(nearly->bytes, 200 * kMiB);
  EXPECT_EQ(allocator.statistics().oversize_allocations.current, 2);
  EXPECT_EQ(allocator.statistics().oversize_segments.allocated, 2);
}

TEST(Pressure, GivesOversizeBlocksBackBeforeTheWholeCache) {
  ModelledSource source(500 * kMiB);
  EventsOnWait events;
  CachingAllocator allocator(AllocatorConfig::Parse("max_split_size_mb:100"), source, events);
  Block* small = allocator.Allocate(50 * kMiB, kAny);
  Block* first = allocator.Allocate(150 * kMiB, kAny);
  Block* second = allocator.Allocate(200 * kMiB, kAny);
  allocator.Free(small);
  allocator.Free(first);
  allocator.Free(second);
  // No cached block is as large as 300 MiB: the largest go first, until they are enough together.
  allocator.Allocate(300 * kMiB, kAny);
  EXPECT_EQ(allocator.reserved_bytes(), 350 * kMiB);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 0);
}

TEST(Pressure, GivesNoMoreOversizeBlocksBackThanAreEnough) {
  ModelledSource source(500 * kMiB);
  EventsOnWait events;
  CachingAllocator allocator(AllocatorConfig::Parse("max_split_size_mb:100"), source, events);
  Block* blocks[] = {allocator.Allocate(100 * kMiB, kAny), allocator.Allocate(150 * kMiB, kAny),
                     allocator.Allocate(200 * kMiB, kAny)};
  for (Block* block : blocks) allocator.Free(block);
  allocator.Allocate(350 * kMiB, kAny);  // 200 + 150, to the byte
  EXPECT_EQ(allocator.reserved_bytes(), 450 * kMiB);
  EXPECT_EQ(allocator.statistics().num_device_free, 2);
}

TEST(Pressure, CollectsTheOldestBlocksOverTheThreshold) {
  ModelledSource source(kGiB);
  EventsOnWait events;
  CachingAllocator allocator(
      AllocatorConfig::Parse("garbage_collection_threshold:0.5,per_process_memory_fraction:0.5"),
      source, events);
  Block* oldest = allocator.Allocate(100 * kMiB, kAny);
  Block* young = allocator.Allocate(120 * kMiB, kAny);
  allocator.Free(oldest);
  for (int i = 0; i < 10; ++i) allocator.Free(allocator.Allocate(110 * kMiB, kAny));
  allocator.Free(young);
  allocator.Allocate(200 * kMiB, kAny);
  // 330 MiB were over 256: the block of 100 MiB was older than the mean, the others not.
  EXPECT_EQ(allocator.statistics().num_device_free, 1);
  EXPECT_EQ(allocator.reserved_bytes(), (110 + 120 + 200) * kMiB);
}

TEST(Pressure, DoesNotCollectWithoutALimit) {
  ModelledSource source(kGiB);
  EventsOnWait events;
  CachingAllocator allocator(AllocatorConfig::Parse("garbage_collection_threshold:0.2"), source,
                             events);
  allocator.Free(allocator.Allocate(500 * kMiB, kAny));
  allocator.Allocate(510 * kMiB, kAny);
  EXPECT_EQ(allocator.reserved_bytes(), 1010 * kMiB);
}

}  // namespace
}  // namespace hbmtune::memory

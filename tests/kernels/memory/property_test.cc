// Random traces under random settings; whatever happens, the books must be right.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "kernels/core/error.h"
#include "kernels/core/units.h"
#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/modelled_source.h"
#include "kernels/memory/rounding.h"
#include "kernels/memory/snapshot.h"

namespace hbmtune::memory {
namespace {

AllocatorConfig RandomConfig(std::mt19937_64& random) {
  auto one_of = [&](std::initializer_list<const char*> texts) {
    return std::string(texts.begin()[random() % texts.size()]);
  };
  return AllocatorConfig::Parse(
      one_of({"", "max_split_size_mb:20,", "max_split_size_mb:64,"}) +
      one_of({"", "roundup_power2_divisions:4,", "roundup_power2_divisions:[1:2,8:8,>:4],"}) +
      one_of({"", "expandable_segments:True,"}) +
      one_of({"", "per_process_memory_fraction:0.6,garbage_collection_threshold:0.5,"}));
}

int64_t RandomBytes(std::mt19937_64& random) {
  int64_t limit = int64_t{1} << (random() % 27);  // up to 64 MiB, all magnitudes alike
  return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
}

struct Totals {
  int64_t allocated = 0, allocated_blocks = 0, mapped = 0, inactive_split = 0, blocks = 0;
};

// Walks one segment: blocks tile it, free neighbours are joined.
void CheckSegment(const Segment& segment, Totals& totals) {
  Address expected = segment.address;
  const Block* previous = nullptr;
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    ASSERT_EQ(block->address, expected);
    ASSERT_EQ(block->previous, previous);
    ASSERT_EQ(block->segment, &segment);
    ASSERT_GT(block->bytes, 0);
    ASSERT_EQ(block->bytes % kMinBlockBytes, 0);
    if (previous != nullptr && previous->mapped == block->mapped) {
      ASSERT_FALSE(previous->idle() && block->idle()) << "free neighbours were not joined";
    }
    if (block->allocated) {
      ASSERT_GE(block->bytes, block->requested_bytes);
      totals.allocated += block->bytes;
      ++totals.allocated_blocks;
    }
    if (block->mapped) totals.mapped += block->bytes;
    if (block->idle() && block->is_split() && !segment.expandable()) {
      totals.inactive_split += block->bytes;
    }
    ++totals.blocks;
    expected += block->bytes;
    previous = block;
  }
  ASSERT_EQ(expected, segment.address + segment.bytes);
}

void Check(const CachingAllocator& allocator, const ModelledSource& source,
           const std::set<Block*>& live) {
  Totals totals;
  std::set<std::pair<Address, Address>> ranges;
  for (const Segment* s = allocator.segments(); s != nullptr; s = s->next) {
    ASSERT_NO_FATAL_FAILURE(CheckSegment(*s, totals));
    ranges.emplace(s->address, s->address + s->bytes);
  }
  Address end = 0;
  for (auto [from, to] : ranges) {
    ASSERT_LE(end, from) << "segments overlap";
    end = to;
  }
  const AllocatorStatistics& statistics = allocator.statistics();
  ASSERT_EQ(totals.allocated, statistics.allocated_bytes.all.current);
  ASSERT_EQ(totals.allocated_blocks, static_cast<int64_t>(live.size()));
  ASSERT_EQ(totals.mapped, statistics.reserved_bytes.all.current);
  ASSERT_EQ(totals.inactive_split, statistics.inactive_split_bytes.all.current);
  ASSERT_EQ(source.capacity_bytes() - source.free_bytes(), totals.mapped);
  int64_t by_category = 0;
  for (int64_t bytes : allocator.allocated_by_category()) by_category += bytes;
  ASSERT_EQ(by_category, totals.allocated);
  ASSERT_LE(statistics.allocated_bytes.all.peak, statistics.active_bytes.all.peak);
  ASSERT_LE(statistics.active_bytes.all.peak, statistics.reserved_bytes.all.peak);
}

// The snapshot tells the same: segments and states add up to the statistics.
void CheckSnapshot(const CachingAllocator& allocator) {
  int64_t total = 0, allocated = 0, active = 0, blocks = 0;
  Address end = 0;
  const nlohmann::ordered_json snapshot = Snapshot(allocator, nullptr);
  for (const auto& segment : snapshot["segments"]) {
    ASSERT_LE(end, segment["address"].get<Address>()) << "not in order of address";
    end = segment["address"].get<Address>();
    for (const auto& block : segment["blocks"]) {
      ASSERT_EQ(block["address"].get<Address>(), end);
      end += block["size"].get<Address>();
      blocks += block["state"] == "active_allocated";
    }
    total += segment["total_size"].get<int64_t>();
    allocated += segment["allocated_size"].get<int64_t>();
    active += segment["active_size"].get<int64_t>();
    ASSERT_EQ(end, segment["address"].get<Address>() + segment["total_size"].get<Address>());
  }
  const AllocatorStatistics& statistics = allocator.statistics();
  ASSERT_EQ(total, statistics.reserved_bytes.all.current);
  ASSERT_EQ(allocated, statistics.allocated_bytes.all.current);
  ASSERT_EQ(active, statistics.active_bytes.all.current);
  ASSERT_EQ(blocks, statistics.allocation.all.current);
}

void RunTrace(uint64_t seed) {
  std::mt19937_64 random(seed);
  ModelledSource source(512 * kMiB);
  EventsOnWait events;
  CachingAllocator allocator(RandomConfig(random), source, events);
  std::set<Block*> live;
  for (int step = 0; step < 1500; ++step) {
    uint64_t what = random() % 100;
    if (what < 55) {
      auto category = static_cast<Category>(random() % kCategoryCount);
      try {
        live.insert(allocator.Allocate(RandomBytes(random), category,
                                       static_cast<StreamId>(random() % 3)));
      } catch (const OutOfMemory&) {
        for (Block* block : live) allocator.Free(block);
        live.clear();
      }
    } else if (what < 96 && !live.empty()) {
      auto victim = std::next(live.begin(), static_cast<int64_t>(random() % live.size()));
      if (what < 65) allocator.RecordStream(*victim, static_cast<StreamId>(random() % 3));
      allocator.Free(*victim);
      live.erase(victim);
    } else if (what < 98) {
      events.Progress(static_cast<StreamId>(random() % 3));
    } else if (what == 99) {
      allocator.EmptyCache();
    }
    if (step % 10 == 0) {
      ASSERT_NO_FATAL_FAILURE(Check(allocator, source, live));
    }
    if (step % 100 == 0) {
      ASSERT_NO_FATAL_FAILURE(CheckSnapshot(allocator));
    }
  }
  for (Block* block : live) allocator.Free(block);
  allocator.EmptyCache();
  EXPECT_EQ(allocator.reserved_bytes(), 0);
  EXPECT_EQ(allocator.statistics().active.all.current, 0);
  EXPECT_EQ(allocator.statistics().inactive_split.all.current, 0);
}

TEST(AllocatorProperty, BooksAreRightOverRandomTraces) {
  std::random_device device;
  uint64_t first = device();
  for (uint64_t seed = first; seed < first + 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RunTrace(seed);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace hbmtune::memory

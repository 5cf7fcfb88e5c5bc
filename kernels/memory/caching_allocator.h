#pragma once

#include <array>
#include <deque>
#include <vector>

#include "kernels/memory/allocator_config.h"
#include "kernels/memory/block.h"
#include "kernels/memory/free_list.h"
#include "kernels/memory/node_pool.h"
#include "kernels/memory/observer.h"
#include "kernels/memory/segment_source.h"
#include "kernels/memory/statistics.h"
#include "kernels/memory/stream_events.h"

namespace hbmtune::memory {

using ByCategory = std::array<int64_t, kCategoryCount>;  // bytes, indexed by Category

// Who held the memory when allocated bytes were at their highest.
struct AllocatedPeak {
  int64_t bytes = 0;
  ByCategory by_category{};
  int64_t allocation = 0;  // the peak was reached by this call of Allocate, counted from 1
};

// PyTorch's caching allocator, decision for decision (c10/cuda/CUDACachingAllocator.cpp of 2.15;
// graph-private pools and free-memory callbacks are left out). Requests up to 1 MiB are packed in
// segments of 2 MiB, larger ones in segments of their own; free blocks are kept and reused by best
// fit on the same stream; what is cached goes back to the driver only under pressure.
//
// One thread at a time. Sizes are bytes. The source and the events must outlive the allocator.
class CachingAllocator {
 public:
  CachingAllocator(const AllocatorConfig& config, SegmentSource& source, StreamEvents& events);
  // Gives everything back to the source, live blocks included.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // A block of at least `bytes` for work on `stream`; nullptr for 0 bytes. Throws OutOfMemory when
  // neither cache nor driver has it, and std::invalid_argument for a negative size or a stream
  // outside [0, 64).
  Block* Allocate(int64_t bytes, Category category, StreamId stream = 0);
  // Ends the block's life; nullptr is ignored. Work on its own stream needs no wait; blocks that
  // were recorded on other streams come back when those got past this point.
  void Free(Block* block);
  // The block is also used by `stream`.
  void RecordStream(Block* block, StreamId stream);
  // Waits for other streams, then gives unused segments back (torch.cuda.empty_cache).
  void EmptyCache();

  // As newly built, everything given back to the source; observers stay.
  void Reset() { Reset(config_); }
  void Reset(const AllocatorConfig& config);

  const AllocatorConfig& config() const { return config_; }
  const AllocatorStatistics& statistics() const { return statistics_; }
  int64_t allocated_bytes() const { return statistics_.allocated_bytes.all.current; }
  int64_t reserved_bytes() const { return statistics_.reserved_bytes.all.current; }
  // Live bytes by owner; their sum is allocated_bytes().
  const ByCategory& allocated_by_category() const { return allocated_by_category_; }
  // The highest allocated bytes since the start or ResetPeak.
  AllocatedPeak allocated_peak() const;
  void ResetPeak();
  void ResetAccumulated() { statistics_.ResetAccumulated(); }

  // Told of everything from now on; must outlive the allocator or be removed.
  void AddObserver(AllocatorObserver* observer) { observers_.push_back(observer); }
  void RemoveObserver(AllocatorObserver* observer);

  // All segments, newest first: Segment::next, and Segment::first for the blocks.
  const Segment* segments() const { return segments_; }

 private:
  struct Request {
    int64_t requested_bytes;
    int64_t bytes;          // rounded
    int64_t segment_bytes;  // what the driver would be asked for
    StreamId stream;
    Pool& pool;
    StreamFreeList& list;
  };
  struct PendingFree {
    int64_t ticket;
    Block* block;
  };

  // allocate.cc: from request to block
  Block* TakeFree(const Request& request);
  Block* TakeFromDriver(const Request& request);
  Block* NewSegment(const Request& request);
  bool OverLimit(int64_t more_bytes) const;
  bool ShouldSplit(const Block& block, int64_t bytes) const;
  Block* Carve(Block* block, const Request& request);
  Block* SplitFront(Block* block, int64_t bytes);
  void CountAllocated(Block* block);
  [[noreturn]] void ThrowOutOfMemory(const Request& request);

  // release.cc: from block back to the driver
  void MakeIdle(Block* block);
  int64_t Merge(Block* block, Block* neighbour);
  void CollectGarbage();
  bool ReleaseOversize(const Request& request);
  void ReleaseCached();
  void ReleaseUnsplit(Pool& pool);
  void ReleaseSegment(Block* block);
  void RecordEvents(Block* block);
  void ProcessEvents();
  void WaitForEvents();

  // expandable.cc
  Block* GrowExpandable(const Request& request);
  Block* FindGrowable(const Request& request);
  Block* NewExpandable(const Request& request);
  Block* MapFront(Block* block, int64_t bytes);
  void UnmapPages(Block* block);
  void ReleaseExpandable(Block* block);
  FreeSet::Position PreferGrowable(const FreeSet& free, FreeSet::Position best) const;

  // caching_allocator.cc: the books
  Block* NewBlock(Segment* segment, Address address, int64_t bytes);
  Segment* AddSegment(const Request& request, Address address, int64_t bytes, int64_t page_bytes);
  void DropSegment(Segment* segment);
  void DropEverything();

  Pool& pool_of(const Segment& segment) {
    return segment.pool == PoolKind::kSmall ? small_ : large_;
  }
  StreamFreeList& list_of(const Segment& segment) {
    return pool_of(segment).of(segment.stream);
  }
  bool collects_garbage() const {
    return allowed_bytes_ != AllocatorConfig::kUnlimited &&
           config_.garbage_collection_threshold > 0;
  }
  void InsertFree(Block* block);
  void Notify(Action action, const Block& block);
  void Notify(Action action, const Segment& segment, Address address, int64_t bytes);

  AllocatorConfig config_;
  SegmentSource& source_;
  StreamEvents& events_;
  int64_t allowed_bytes_;

  Pool small_{PoolKind::kSmall, 0, {}};
  Pool large_{PoolKind::kLarge, 0, {}};
  std::vector<std::deque<PendingFree>> pending_;  // by stream, oldest first
  int64_t pending_count_ = 0;

  AllocatorStatistics statistics_;
  ByCategory allocated_by_category_{};
  // Copied at the first free after a new peak: a step has thousands of new highs, few peaks.
  AllocatedPeak peak_;
  bool peak_is_now_ = false;
  int64_t allocations_ = 0;
  int64_t segments_made_ = 0;

  Segment* segments_ = nullptr;
  NodePool<Block> block_nodes_;
  NodePool<Segment> segment_nodes_;
  std::vector<AllocatorObserver*> observers_;
};

}  // namespace hbmtune::memory

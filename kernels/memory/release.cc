// From block back to the cache, and from the cache back to the driver.

#include <algorithm>
#include <vector>

#include "kernels/memory/caching_allocator.h"

namespace hbmtune::memory {

// A block that nobody uses any more joins its free neighbours and the free list.
void CachingAllocator::MakeIdle(Block* block) {
  Notify(Action::kFreeCompleted, *block);
  PoolKind kind = block->segment->pool;
  int64_t bytes = block->bytes;
  int64_t split_blocks = 0;
  int64_t split_bytes = 0;
  for (Block* neighbour : {block->previous, block->next}) {
    int64_t merged = Merge(block, neighbour);
    split_blocks -= merged > 0;
    split_bytes -= merged;
  }
  InsertFree(block);
  if (block->is_split()) {
    split_blocks += 1;
    split_bytes += block->bytes;
  }
  if (!block->segment->expandable()) {
    PoolStat& blocks = statistics_.inactive_split;
    PoolStat& in_bytes = statistics_.inactive_split_bytes;
    if (split_blocks > 0) blocks.Increase(kind, split_blocks);
    if (split_blocks < 0) blocks.Decrease(kind, -split_blocks);
    if (split_bytes > 0) in_bytes.Increase(kind, split_bytes);
    if (split_bytes < 0) in_bytes.Decrease(kind, -split_bytes);
  }
  statistics_.active.Decrease(kind, 1);
  statistics_.active_bytes.Decrease(kind, bytes);
  statistics_.requested_bytes.Decrease(kind, block->requested_bytes);
}

// Takes an idle neighbour of the same mapped state, which must be in its list, into `block`.
// Returns the bytes taken, 0 for none.
int64_t CachingAllocator::Merge(Block* block, Block* neighbour) {
  if (neighbour == nullptr || !neighbour->idle() || neighbour->mapped != block->mapped) return 0;
  StreamFreeList& list = list_of(*block->segment);
  if (neighbour->mapped) {
    list.free.Erase(neighbour);
  } else {
    list.unmapped.erase(neighbour->address);
  }
  if (neighbour == block->previous) {
    block->address = neighbour->address;
    block->previous = neighbour->previous;
    (block->previous != nullptr ? block->previous->next : block->segment->first) = block;
  } else {
    block->next = neighbour->next;
    if (block->next != nullptr) block->next->previous = block;
  }
  int64_t merged = neighbour->bytes;
  block->bytes += merged;
  block_nodes_.Return(neighbour);
  return merged;
}

// Over the threshold, unsplit blocks of the large pool that are at least as old as the mean go
// back to the driver, round after round, until enough is free. Age counts searches of the pool.
void CachingAllocator::CollectGarbage() {
  auto threshold = static_cast<int64_t>(config_.garbage_collection_threshold *
                                        static_cast<double>(allowed_bytes_));
  if (reserved_bytes() <= threshold) return;
  std::vector<Block*> unsplit;
  int64_t total_age = 0;
  auto age = [&](const Block* block) {
    return int64_t{large_.searches - block->freed_at_search};  // unsigned: wraps rightly
  };
  for (StreamFreeList& list : large_.by_stream) {
    list.free.ForEach([&](Block* block) {
      if (block->is_split() || block->segment->expandable()) return;
      unsplit.push_back(block);
      total_age += age(block);
    });
  }
  while (reserved_bytes() > threshold && !unsplit.empty()) {
    double mean = static_cast<double>(total_age) / static_cast<double>(unsplit.size());
    auto young = std::partition(unsplit.begin(), unsplit.end(), [&](const Block* block) {
      return static_cast<double>(age(block)) < mean;
    });
    if (young == unsplit.end()) return;
    for (auto old = young; old != unsplit.end(); ++old) {
      total_age -= age(*old);
      ReleaseSegment(*old);
    }
    unsplit.erase(young, unsplit.end());
  }
}

// Only with max_split_size: gives back one unsplittable cached block that is large enough, else
// the largest ones of this stream until together they are. False if that was not enough.
bool CachingAllocator::ReleaseOversize(const Request& request) {
  int64_t max_split = config_.max_split_size_bytes;
  if (max_split == AllocatorConfig::kUnlimited) return false;
  FreeSet& free = request.list.free;
  int64_t wanted = std::max(request.bytes, max_split);
  if (auto enough = free.Find(wanted); enough.valid()) {
    Block* block = free.At(enough);
    if (block->segment->expandable()) return false;
    ReleaseSegment(block);
    return true;
  }
  std::vector<Block*> largest;
  int64_t released = 0;
  for (auto p = free.Last(); p.valid() && released < wanted; p = free.Previous(p)) {
    Block* block = free.At(p);
    if (block->bytes < max_split) break;
    if (block->segment->expandable()) continue;
    largest.push_back(block);
    released += block->bytes;
  }
  for (Block* block : largest) ReleaseSegment(block);
  return released >= wanted;
}

void CachingAllocator::ReleaseCached() {
  WaitForEvents();
  ReleaseUnsplit(large_);
  ReleaseUnsplit(small_);
}

void CachingAllocator::ReleaseUnsplit(Pool& pool) {
  std::vector<Block*> whole, expandable;
  for (StreamFreeList& list : pool.by_stream) {
    list.free.ForEach([&](Block* block) {
      if (block->segment->expandable()) {
        expandable.push_back(block);
      } else if (!block->is_split()) {
        whole.push_back(block);
      }
    });
  }
  for (Block* block : whole) ReleaseSegment(block);
  for (Block* block : expandable) {
    UnmapPages(block);
    if (!block->mapped && !block->is_split()) ReleaseExpandable(block);
  }
}

// Gives a segment that is one free block back to the driver.
void CachingAllocator::ReleaseSegment(Block* block) {
  Segment* segment = block->segment;
  ++statistics_.num_device_free;
  source_.Free(segment->address, segment->bytes);
  statistics_.segment.Decrease(segment->pool, 1);
  statistics_.reserved_bytes.Decrease(segment->pool, segment->bytes);
  if (segment->bytes >= config_.max_split_size_bytes) statistics_.oversize_segments.Decrease(1);
  list_of(*segment).free.Erase(block);
  Notify(Action::kSegmentFree, *segment, segment->address, segment->bytes);
  DropSegment(segment);
}

// One event on each stream that used the block; it is idle when all have completed.
void CachingAllocator::RecordEvents(Block* block) {
  uint64_t streams = block->used_on_streams;
  block->used_on_streams = 0;
  for (StreamId stream = 0; streams != 0; ++stream, streams >>= 1) {
    if ((streams & 1) == 0) continue;
    if (pending_.size() <= static_cast<size_t>(stream)) pending_.resize(stream + 1);
    ++block->pending_events;
    ++pending_count_;
    pending_[stream].push_back({events_.Record(stream), block});
  }
}

void CachingAllocator::ProcessEvents() {
  for (size_t stream = 0; stream < pending_.size(); ++stream) {
    auto& queue = pending_[stream];
    while (!queue.empty() && events_.Done(static_cast<StreamId>(stream), queue.front().ticket)) {
      Block* block = queue.front().block;
      queue.pop_front();
      --pending_count_;
      if (--block->pending_events == 0) MakeIdle(block);
    }
  }
}

void CachingAllocator::WaitForEvents() {
  ++statistics_.num_sync_all_streams;
  for (size_t stream = 0; stream < pending_.size(); ++stream) {
    for (const PendingFree& pending : pending_[stream]) {
      events_.Wait(static_cast<StreamId>(stream), pending.ticket);
      if (--pending.block->pending_events == 0) MakeIdle(pending.block);
    }
    pending_[stream].clear();
  }
  pending_count_ = 0;
}

}  // namespace hbmtune::memory

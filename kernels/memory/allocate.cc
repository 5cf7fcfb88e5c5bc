// From request to block: cache, driver, pressure. The order of the attempts is PyTorch's.

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/rounding.h"

namespace hbmtune::memory {

// Best fit: the smallest free block of this stream that is large enough.
// A block that may not be split is refused when it would waste too much.
Block* CachingAllocator::TakeFree(const Request& request) {
  if (collects_garbage()) ++request.pool.searches;
  FreeSet& free = request.list.free;
  FreeSet::Position best = free.Find(request.bytes);
  if (!best.valid()) return nullptr;
  if (config_.expandable_segments) best = PreferGrowable(free, best);
  Block* block = free.At(best);
  int64_t max_split = config_.max_split_size_bytes;
  if (request.bytes < max_split) {
    if (block->bytes >= max_split) return nullptr;
  } else if (block->bytes >= request.bytes + config_.max_non_split_rounding_bytes) {
    return nullptr;
  }
  free.EraseAt(best);
  return block;
}

Block* CachingAllocator::TakeFromDriver(const Request& request) {
  if (collects_garbage()) CollectGarbage();
  Block* block = NewSegment(request);
  if (block == nullptr && ReleaseOversize(request)) block = NewSegment(request);
  if (block == nullptr) {
    ReleaseCached();
    ++statistics_.num_alloc_retries;
    block = NewSegment(request);
  }
  if (block == nullptr) ThrowOutOfMemory(request);
  return block;
}

bool CachingAllocator::OverLimit(int64_t more_bytes) const {
  return more_bytes > allowed_bytes_ - reserved_bytes();
}

// A free block, in no list, of at least the request's size; nullptr if the memory is not there.
Block* CachingAllocator::NewSegment(const Request& request) {
  if (OverLimit(request.segment_bytes)) return nullptr;
  if (config_.expandable_segments) return GrowExpandable(request);
  Address address = source_.Allocate(request.segment_bytes);
  if (address == 0) return nullptr;
  Segment* segment = AddSegment(request, address, request.segment_bytes, 0);
  statistics_.segment.Increase(segment->pool, 1);
  statistics_.reserved_bytes.Increase(segment->pool, segment->bytes);
  if (segment->bytes >= config_.max_split_size_bytes) statistics_.oversize_segments.Increase(1);
  ++statistics_.num_device_alloc;
  Notify(Action::kSegmentAlloc, *segment, address, segment->bytes);
  return segment->first;
}

// In the large pool up to 1 MiB of slack stays with the block and counts as allocated.
bool CachingAllocator::ShouldSplit(const Block& block, int64_t bytes) const {
  int64_t rest = block.bytes - bytes;
  if (block.segment->pool == PoolKind::kSmall || config_.expandable_segments) {
    return rest >= kMinBlockBytes;
  }
  return bytes < config_.max_split_size_bytes && rest > kSmallRequestBytes;
}

// Turns a free block, in no list, into an allocated one; the rest of it becomes a free block.
Block* CachingAllocator::Carve(Block* block, const Request& request) {
  bool was_split = block->is_split();
  bool counts = !block->segment->expandable();
  PoolKind kind = request.pool.kind;
  if (ShouldSplit(*block, request.bytes)) {
    Block* rest = SplitFront(block, request.bytes);
    if (counts && was_split) {
      statistics_.inactive_split_bytes.Decrease(kind, block->bytes);
    } else if (counts) {
      statistics_.inactive_split_bytes.Increase(kind, rest->bytes);
      statistics_.inactive_split.Increase(kind, 1);
    }
  } else if (was_split && counts) {
    statistics_.inactive_split_bytes.Decrease(kind, block->bytes);
    statistics_.inactive_split.Decrease(kind, 1);
  }
  block->allocated = true;
  block->requested_bytes = request.requested_bytes;
  return block;
}

// Leaves the first `bytes` in `block` and puts the rest, which is returned, into the free list.
Block* CachingAllocator::SplitFront(Block* block, int64_t bytes) {
  Block* rest = NewBlock(block->segment, block->address + bytes, block->bytes - bytes);
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->bytes = bytes;
  InsertFree(rest);
  return rest;
}

void CachingAllocator::ThrowOutOfMemory(const Request& request) {
  ++statistics_.num_ooms;
  MemoryShortage shortage;
  shortage.requested_bytes = request.requested_bytes;
  shortage.segment_bytes = request.segment_bytes;
  // A limit of the allocator's own counts as the device's.
  shortage.free_bytes = std::min(source_.free_bytes(), allowed_bytes_ - reserved_bytes());
  shortage.capacity_bytes = std::min(source_.capacity_bytes(), allowed_bytes_);
  shortage.reserved_bytes = reserved_bytes();
  shortage.allocated_bytes = allocated_bytes();
  for (AllocatorObserver* observer : observers_) {
    observer->OnEvent({Action::kOom, static_cast<Address>(source_.free_bytes()), request.bytes,
                       request.bytes, request.stream, Category::kWeights, allocated_bytes(),
                       reserved_bytes()});
  }
  throw OutOfMemory(shortage);
}

}  // namespace hbmtune::memory

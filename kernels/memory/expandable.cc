// Expandable segments: one range of addresses per stream and pool, page by page put behind it.
// They are left out of the segment and inactive_split statistics, as in PyTorch.

#include <algorithm>

#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/rounding.h"

namespace hbmtune::memory {

// A free block that can still grow counts, for best fit, as large as it can become.
FreeSet::Position CachingAllocator::PreferGrowable(const FreeSet& free,
                                                   FreeSet::Position best) const {
  auto reach = [&](FreeSet::Position position) {
    const Block* block = free.At(position);
    bool can_grow = block->next != nullptr && !block->next->mapped;
    return block->bytes + (can_grow ? block->next->bytes : 0);
  };
  for (auto next = free.Next(best); next.valid(); next = free.Next(next)) {
    if (reach(next) >= reach(best)) break;
    best = next;
  }
  return best;
}

// Maps what is missing for the request (its rounded size, not a whole segment) at the lowest
// address that can take it. Returns a free block in no list, or nullptr when the memory is not
// there; what was mapped until then stays cached.
Block* CachingAllocator::GrowExpandable(const Request& request) {
  Block* block = FindGrowable(request);
  if (!block->mapped && MapFront(block, std::min(block->bytes, request.bytes)) == nullptr) {
    return nullptr;
  }
  while (block->bytes < request.bytes) {
    Block* next = block->next;
    int64_t missing = std::min(request.bytes - block->bytes, next->bytes);
    block = MapFront(next, missing);
    if (block == nullptr) return nullptr;
  }
  request.list.free.Erase(block);
  return block;
}

// The first of a row of free or unmapped blocks with room for the request, at the lowest address.
Block* CachingAllocator::FindGrowable(const Request& request) {
  for (const auto& [address, unmapped] : request.list.unmapped) {
    Block* first = unmapped;
    if (first->previous != nullptr && first->previous->idle()) first = first->previous;
    int64_t room = 0;
    for (Block* b = first; b != nullptr && b->idle() && room < request.bytes; b = b->next) {
      room += b->bytes;
    }
    if (room >= request.bytes) return first;
  }
  return NewExpandable(request);
}

// Reserves 1.125 × the device, so that pages freed early can come back at the end.
Block* CachingAllocator::NewExpandable(const Request& request) {
  bool small = request.pool.kind == PoolKind::kSmall;
  int64_t page_bytes = small ? kSmallSegmentBytes : config_.large_segment_bytes;
  int64_t capacity = source_.capacity_bytes();
  int64_t bytes = RoundUpTo(capacity + capacity / 8, page_bytes);
  Segment* segment = AddSegment(request, source_.ReserveAddresses(bytes), bytes, page_bytes);
  Block* block = segment->first;
  block->mapped = false;
  request.list.unmapped.emplace(block->address, block);
  return block;
}

// Puts whole pages behind the first `bytes` of an unmapped block, joins it with free neighbours
// and puts it into the free list. nullptr, with nothing changed, when the memory is not there.
Block* CachingAllocator::MapFront(Block* block, int64_t bytes) {
  Segment* segment = block->segment;
  int64_t mapped_bytes = RoundUpTo(bytes, segment->page_bytes);
  if (!source_.Map(block->address, mapped_bytes)) return nullptr;
  Address mapped_address = block->address;
  StreamFreeList& list = list_of(*segment);
  list.unmapped.erase(block->address);
  block->mapped = true;
  if (mapped_bytes < block->bytes) {
    Block* rest = NewBlock(segment, block->address + mapped_bytes, block->bytes - mapped_bytes);
    rest->mapped = false;
    rest->previous = block;
    rest->next = block->next;
    if (rest->next != nullptr) rest->next->previous = rest;
    block->next = rest;
    block->bytes = mapped_bytes;
    list.unmapped.emplace(rest->address, rest);
  }
  Merge(block, block->previous);
  Merge(block, block->next);
  InsertFree(block);
  statistics_.reserved_bytes.Increase(segment->pool, mapped_bytes);
  ++statistics_.num_device_alloc;
  Notify(Action::kSegmentMap, *segment, mapped_address, mapped_bytes);
  return block;
}

// Gives back the whole pages inside a free block; what is left of it at either end stays free.
void CachingAllocator::UnmapPages(Block* block) {
  Segment* segment = block->segment;
  int64_t page = segment->page_bytes;
  int64_t start = block->address - segment->address;
  int64_t begin = RoundUpTo(start, page);
  int64_t end = (start + block->bytes) / page * page;
  if (begin >= end) return;
  source_.Unmap(segment->address + begin, end - begin);
  list_of(*segment).free.Erase(block);
  if (int64_t tail_bytes = start + block->bytes - end; tail_bytes > 0) {
    block->bytes -= tail_bytes;
    Block* tail = NewBlock(segment, segment->address + end, tail_bytes);
    tail->previous = block;
    tail->next = block->next;
    if (tail->next != nullptr) tail->next->previous = tail;
    block->next = tail;
    InsertFree(tail);
  }
  if (begin > start) {
    Block* head = NewBlock(segment, block->address, begin - start);
    head->previous = block->previous;
    (head->previous != nullptr ? head->previous->next : segment->first) = head;
    head->next = block;
    block->previous = head;
    block->address += begin - start;
    block->bytes -= begin - start;
    InsertFree(head);
  }
  block->mapped = false;
  Merge(block, block->previous);
  Merge(block, block->next);
  list_of(*segment).unmapped.emplace(block->address, block);
  statistics_.reserved_bytes.Decrease(segment->pool, end - begin);
  ++statistics_.num_device_free;
  Notify(Action::kSegmentUnmap, *segment, segment->address + begin, end - begin);
}

void CachingAllocator::ReleaseExpandable(Block* block) {
  Segment* segment = block->segment;
  list_of(*segment).unmapped.erase(block->address);
  source_.ReleaseAddresses(segment->address, segment->bytes);
  DropSegment(segment);
}

}  // namespace hbmtune::memory

#include "kernels/memory/caching_allocator.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/memory/rounding.h"

namespace hbmtune::memory {

CachingAllocator::CachingAllocator(const AllocatorConfig& config, SegmentSource& source,
                                   StreamEvents& events)
    : source_(source), events_(events) {
  Reset(config);
}

CachingAllocator::~CachingAllocator() { DropEverything(); }

Block* CachingAllocator::Allocate(int64_t bytes, Category category, StreamId stream) {
  if (bytes == 0) return nullptr;
  if (bytes < 0 || stream < 0 || stream >= kMaxStreams) {
    throw std::invalid_argument("allocation of " + std::to_string(bytes) + " bytes on stream " +
                                std::to_string(stream) + ": the size must not be negative and " +
                                "the stream must be in [0, 64)");
  }
  if (pending_count_ > 0) ProcessEvents();
  int64_t rounded = RoundRequest(bytes, config_);
  Pool& pool = rounded <= kSmallRequestBytes ? small_ : large_;
  Request request{bytes,  rounded, SegmentBytesFor(rounded, config_), stream, pool,
                  pool.of(stream)};
  Block* block = TakeFree(request);
  if (block == nullptr) block = TakeFromDriver(request);
  block = Carve(block, request);
  block->category = category;
  CountAllocated(block);
  return block;
}

void CachingAllocator::CountAllocated(Block* block) {
  PoolKind kind = block->segment->pool;
  ++allocations_;
  statistics_.allocation.Increase(kind, 1);
  if (allocated_bytes() + block->bytes > statistics_.allocated_bytes.all.peak) {
    peak_is_now_ = true;
    peak_.allocation = allocations_;
  }
  statistics_.allocated_bytes.Increase(kind, block->bytes);
  statistics_.active.Increase(kind, 1);
  statistics_.active_bytes.Increase(kind, block->bytes);
  statistics_.requested_bytes.Increase(kind, block->requested_bytes);
  if (block->bytes >= config_.max_split_size_bytes) statistics_.oversize_allocations.Increase(1);
  allocated_by_category_[static_cast<size_t>(block->category)] += block->bytes;
  Notify(Action::kAlloc, *block);
}

void CachingAllocator::Free(Block* block) {
  if (block == nullptr) return;
  // MakeIdle looks at both neighbours, which are seldom in the cache: 10 % of a pair.
  __builtin_prefetch(block->previous);
  __builtin_prefetch(block->next);
  if (peak_is_now_) {
    peak_ = allocated_peak();
    peak_is_now_ = false;
  }
  PoolKind kind = block->segment->pool;
  block->allocated = false;
  statistics_.allocation.Decrease(kind, 1);
  statistics_.allocated_bytes.Decrease(kind, block->bytes);
  if (block->bytes >= config_.max_split_size_bytes) statistics_.oversize_allocations.Decrease(1);
  allocated_by_category_[static_cast<size_t>(block->category)] -= block->bytes;
  Notify(Action::kFreeRequested, *block);
  if (block->used_on_streams != 0) {
    RecordEvents(block);
  } else {
    MakeIdle(block);
  }
}

void CachingAllocator::RecordStream(Block* block, StreamId stream) {
  if (stream < 0 || stream >= kMaxStreams) {
    throw std::invalid_argument("stream " + std::to_string(stream) + " must be in [0, 64)");
  }
  if (block == nullptr || stream == block->segment->stream) return;
  block->used_on_streams |= uint64_t{1} << stream;
}

void CachingAllocator::EmptyCache() { ReleaseCached(); }

void CachingAllocator::Reset(const AllocatorConfig& config) {
  DropEverything();
  config_ = config;
  allowed_bytes_ = config.per_process_memory_fraction < 1
                       ? static_cast<int64_t>(config.per_process_memory_fraction *
                                              static_cast<double>(source_.capacity_bytes()))
                       : AllocatorConfig::kUnlimited;
  statistics_ = {};
  statistics_.max_split_size =
      config.max_split_size_bytes == AllocatorConfig::kUnlimited ? -1 : config.max_split_size_bytes;
  allocated_by_category_ = {};
  peak_ = {};
  peak_is_now_ = false;
  allocations_ = 0;
  segments_made_ = 0;
}

AllocatedPeak CachingAllocator::allocated_peak() const {
  if (!peak_is_now_) return peak_;
  return {allocated_bytes(), allocated_by_category_, peak_.allocation};
}

void CachingAllocator::ResetPeak() {
  statistics_.ResetPeak();
  peak_ = {allocated_bytes(), allocated_by_category_, allocations_};
  peak_is_now_ = false;
}

void CachingAllocator::RemoveObserver(AllocatorObserver* observer) {
  std::erase(observers_, observer);
}

Block* CachingAllocator::NewBlock(Segment* segment, Address address, int64_t bytes) {
  Block* block = block_nodes_.Take();
  block->segment = segment;
  block->address = address;
  block->bytes = bytes;
  return block;
}

// A segment of one mapped block, in no free list yet.
Segment* CachingAllocator::AddSegment(const Request& request, Address address, int64_t bytes,
                                      int64_t page_bytes) {
  Segment* segment = segment_nodes_.Take();
  segment->address = address;
  segment->bytes = bytes;
  segment->page_bytes = page_bytes;
  segment->serial = config_.rules == AllocatorRules::kCurrent ? ++segments_made_ : 0;
  segment->stream = request.stream;
  segment->pool = request.pool.kind;
  segment->first = NewBlock(segment, address, bytes);
  segment->next = segments_;
  if (segments_ != nullptr) segments_->previous = segment;
  segments_ = segment;
  return segment;
}

// Forgets a segment of one block; the caller gives its memory back.
void CachingAllocator::DropSegment(Segment* segment) {
  if (segment->next != nullptr) segment->next->previous = segment->previous;
  (segment->previous != nullptr ? segment->previous->next : segments_) = segment->next;
  block_nodes_.Return(segment->first);
  segment_nodes_.Return(segment);
}

void CachingAllocator::DropEverything() {
  while (segments_ != nullptr) {
    Segment* segment = segments_;
    segments_ = segment->next;
    for (Block* block = segment->first; block != nullptr;) {
      Block* next = block->next;
      if (segment->expandable() && block->mapped) source_.Unmap(block->address, block->bytes);
      block_nodes_.Return(block);
      block = next;
    }
    if (segment->expandable()) {
      source_.ReleaseAddresses(segment->address, segment->bytes);
    } else {
      source_.Free(segment->address, segment->bytes);
    }
    segment_nodes_.Return(segment);
  }
  small_.Clear();
  large_.Clear();
  pending_.clear();
  pending_count_ = 0;
}

void CachingAllocator::InsertFree(Block* block) {
  Pool& pool = pool_of(*block->segment);
  block->freed_at_search = pool.searches;
  pool.of(block->segment->stream).free.Insert(block);
}

void CachingAllocator::Notify(Action action, const Block& block) {
  if (observers_.empty()) [[likely]] return;
  AllocatorEvent event{action,        block.address,          block.requested_bytes,
                       block.bytes,   block.segment->stream,  block.category,
                       allocated_bytes(), reserved_bytes()};
  for (AllocatorObserver* observer : observers_) observer->OnEvent(event);
}

void CachingAllocator::Notify(Action action, const Segment& segment, Address address,
                              int64_t bytes) {
  if (observers_.empty()) [[likely]] return;
  AllocatorEvent event{action, address, bytes, bytes, segment.stream, Category::kWeights,
                       allocated_bytes(), reserved_bytes()};
  for (AllocatorObserver* observer : observers_) observer->OnEvent(event);
}

}  // namespace hbmtune::memory

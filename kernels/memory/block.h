#pragma once

#include <cstdint>

#include "kernels/core/category.h"
#include "kernels/memory/segment_source.h"
#include "kernels/memory/statistics.h"
#include "kernels/memory/stream_events.h"

namespace hbmtune::memory {

struct Block;

// What one call to the driver gave (or, expandable, one range of reserved addresses). Its blocks
// tile it without gaps, in address order.
struct alignas(64) Segment {
  Address address = 0;
  int64_t bytes = 0;
  int64_t page_bytes = 0;  // expandable: the unit of mapping; else 0
  int64_t serial = 0;      // of its creation; 0 for all where ties go by address alone
  Block* first = nullptr;
  Segment* previous = nullptr;  // the list of all segments of the allocator
  Segment* next = nullptr;
  StreamId stream = 0;
  PoolKind pool = PoolKind::kSmall;

  bool expandable() const { return page_bytes != 0; }
};

// A piece of a segment: allocated, waiting for other streams, free, or (expandable) unmapped.
// Callers of the allocator only read it; it stays valid until they free it.
// One cache line: a free touches the block and both neighbours.
struct alignas(64) Block {
  Address address = 0;
  int64_t bytes = 0;            // rounded; what counts as allocated
  int64_t requested_bytes = 0;  // of its last allocation
  Block* previous = nullptr;    // neighbours in the segment
  Block* next = nullptr;
  Segment* segment = nullptr;
  uint64_t used_on_streams = 0; // bit s: recorded on stream s, no event yet
  uint32_t freed_at_search = 0; // the pool's count of searches when it became free
  uint8_t pending_events = 0;   // at most one for each of 64 streams
  Category category = Category::kWeights;
  bool allocated = false;
  bool mapped = true;

  bool is_split() const { return previous != nullptr || next != nullptr; }
  // Neither allocated nor waiting for another stream.
  bool idle() const { return !allocated && pending_events == 0 && used_on_streams == 0; }
};

static_assert(sizeof(Block) == 64);

}  // namespace hbmtune::memory

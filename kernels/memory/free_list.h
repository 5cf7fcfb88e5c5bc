#pragma once

#include <map>
#include <tuple>
#include <vector>

#include <absl/container/btree_set.h>

#include "kernels/memory/block.h"

namespace hbmtune::memory {

// A free block in the order of best fit: by size, then by age of the segment, then by address.
// (PyTorch before its registration counter took the lowest address of all.) The keys are copied
// so that a search touches no block.
struct FreeEntry {
  int64_t bytes = 0;
  int64_t serial = 0;
  Address address = 0;
  Block* block = nullptr;

  friend bool operator<(const FreeEntry& a, const FreeEntry& b) {
    return std::tie(a.bytes, a.serial, a.address) < std::tie(b.bytes, b.serial, b.address);
  }
};

using FreeSet = absl::btree_set<FreeEntry>;

// The idle blocks of one stream in one pool.
struct StreamFreeList {
  FreeSet free;                       // mapped
  std::map<Address, Block*> unmapped; // expandable segments only, by address

  static FreeEntry EntryOf(Block* block) {
    return {block->bytes, block->segment->serial, block->address, block};
  }
  void Insert(Block* block) { free.insert(EntryOf(block)); }
  void Erase(Block* block) { free.erase(EntryOf(block)); }
  // The best fit for `bytes`, or free.end().
  FreeSet::iterator Find(int64_t bytes) { return free.lower_bound(FreeEntry{.bytes = bytes}); }
};

// One of the two pools (up to 1 MiB, and over).
struct Pool {
  PoolKind kind;
  int64_t searches = 0;  // counted only while garbage collection is on, as PyTorch does
  std::vector<StreamFreeList> by_stream;

  StreamFreeList& of(StreamId stream) {
    if (by_stream.size() <= static_cast<size_t>(stream)) by_stream.resize(stream + 1);
    return by_stream[stream];
  }
};

}  // namespace hbmtune::memory

#pragma once

#include <map>
#include <tuple>
#include <vector>

#include <absl/container/btree_set.h>

#include "kernels/memory/block.h"

namespace hbmtune::memory {

// A free block in the order of best fit: by size, then by address. Size and address are copied so
// that a search touches no block.
struct FreeEntry {
  int64_t bytes;
  Address address;
  Block* block;

  friend bool operator<(const FreeEntry& a, const FreeEntry& b) {
    return std::tie(a.bytes, a.address) < std::tie(b.bytes, b.address);
  }
};

using FreeSet = absl::btree_set<FreeEntry>;

// The idle blocks of one stream in one pool.
struct StreamFreeList {
  FreeSet free;                       // mapped
  std::map<Address, Block*> unmapped; // expandable segments only, by address

  void Insert(Block* block) { free.insert({block->bytes, block->address, block}); }
  void Erase(Block* block) { free.erase({block->bytes, block->address, block}); }
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

#pragma once

#include <map>
#include <vector>

#include "kernels/memory/block.h"
#include "kernels/memory/free_set.h"

namespace hbmtune::memory {

// The idle blocks of one stream in one pool.
struct StreamFreeList {
  FreeSet free;                        // mapped
  std::map<Address, Block*> unmapped;  // expandable segments only, by address
};

// One of the two pools (up to 1 MiB, and over).
struct Pool {
  PoolKind kind;
  uint32_t searches = 0;  // counted only while garbage collection is on, as PyTorch does
  std::vector<StreamFreeList> by_stream;

  StreamFreeList& of(StreamId stream) {
    if (by_stream.size() <= static_cast<size_t>(stream)) by_stream.resize(stream + 1);
    return by_stream[stream];
  }
  void Clear() {
    for (StreamFreeList& list : by_stream) {
      list.free.Clear();
      list.unmapped.clear();
    }
    searches = 0;
  }
};

}  // namespace hbmtune::memory

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/memory/block.h"

namespace hbmtune::memory {

// Free blocks in the order of best fit: by size, then by age of the segment, then by address.
// (Older AllocatorRules have no ages: the lowest address of all.)
//
// A bin per sixteenth of a power of two and a bitmap of those in use; each bin is an array sorted
// downwards, so that the block that is taken most often stands at the end. With 10,000 live blocks
// a pair of alloc and free takes 2/3 of the time that a B-tree takes, which spends it on branches
// that cannot be predicted.
class FreeSet {
 public:
  // Where an entry stands; any insertion or erasure makes it void.
  struct Position {
    int32_t bin = kBins;
    int32_t index = 0;

    bool valid() const { return bin < kBins; }
  };

  void Insert(Block* block);
  void Erase(Block* block) { EraseAt(Locate(block)); }
  void EraseAt(Position position);
  void Clear();

  // The best fit: the first block of at least `bytes`, however many.
  Position Find(int64_t bytes) const;
  Position Next(Position position) const;
  Position Last() const;
  Position Previous(Position position) const;
  Block* At(Position position) const { return bins_[position.bin][position.index].block; }

  // In order; `f` must not change the set.
  template <class F>
  void ForEach(F&& f) const {
    for (Position p = Find(0); p.valid(); p = Next(p)) f(At(p));
  }

 private:
  static constexpr int kSubBins = 16;
  static constexpr int kClasses = 40;  // 512 bytes to 512 TiB
  static constexpr int kBins = kClasses * kSubBins;
  static constexpr int kWords = kBins / 64;

  // Size in units of 512 above, age of the segment below; equal ones are told apart by address.
  struct Entry {
    uint64_t order;
    Block* block;
  };
  static Entry EntryOf(Block* block);
  static bool Greater(const Entry& a, const Entry& b) {
    return a.order != b.order ? a.order > b.order : a.block->address > b.block->address;
  }
  static int BinOf(uint64_t units);
  Position Locate(Block* block) const;
  Position FirstFrom(int bin) const;
  // The first used bin from `bin` on, kBins if none; the last one up to `bin`, -1 if none.
  int UsedFrom(int bin) const;
  int UsedUpTo(int bin) const;

  std::vector<std::vector<Entry>> bins_;  // empty until the first insertion
  std::array<uint64_t, kWords> used_{};
};

}  // namespace hbmtune::memory

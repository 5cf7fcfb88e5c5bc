#include "kernels/memory/free_set.h"

#include <algorithm>
#include <bit>

namespace hbmtune::memory {
namespace {

constexpr int kUnitShift = 9;     // blocks measure multiples of 512 bytes
constexpr int kSerialBits = 24;   // 16 million segments, and 40 bits of units
constexpr uint64_t kSerialMask = (uint64_t{1} << kSerialBits) - 1;

}  // namespace

FreeSet::Entry FreeSet::EntryOf(Block* block) {
  auto units = static_cast<uint64_t>(block->bytes) >> kUnitShift;
  auto serial = static_cast<uint64_t>(block->segment->serial) & kSerialMask;
  return {units << kSerialBits | serial, block};
}

// The power of two, and the four bits below it.
int FreeSet::BinOf(uint64_t units) {
  int log2 = std::bit_width(units | 1) - 1;
  auto below = log2 >= 4 ? units >> (log2 - 4) : units << (4 - log2);
  return log2 * kSubBins + static_cast<int>(below & (kSubBins - 1));
}

int FreeSet::UsedFrom(int bin) const {
  if (bin >= kBins) return kBins;
  int word = bin / 64;
  uint64_t bits = used_[word] & (~uint64_t{0} << (bin % 64));
  while (bits == 0) {
    if (++word == kWords) return kBins;
    bits = used_[word];
  }
  return word * 64 + std::countr_zero(bits);
}

int FreeSet::UsedUpTo(int bin) const {
  if (bin < 0) return -1;
  int word = bin / 64;
  uint64_t bits = used_[word] & (~uint64_t{0} >> (63 - bin % 64));
  while (bits == 0) {
    if (--word < 0) return -1;
    bits = used_[word];
  }
  return word * 64 + 63 - std::countl_zero(bits);
}

void FreeSet::Insert(Block* block) {
  if (bins_.empty()) bins_.resize(kBins);
  Entry entry = EntryOf(block);
  int bin = BinOf(entry.order >> kSerialBits);
  std::vector<Entry>& entries = bins_[bin];
  entries.insert(std::lower_bound(entries.begin(), entries.end(), entry, Greater), entry);
  used_[bin / 64] |= uint64_t{1} << (bin % 64);
}

FreeSet::Position FreeSet::Locate(Block* block) const {
  Entry entry = EntryOf(block);
  int bin = BinOf(entry.order >> kSerialBits);
  const std::vector<Entry>& entries = bins_[bin];
  auto found = std::lower_bound(entries.begin(), entries.end(), entry, Greater);
  return {bin, static_cast<int32_t>(found - entries.begin())};
}

void FreeSet::EraseAt(Position position) {
  std::vector<Entry>& entries = bins_[position.bin];
  entries.erase(entries.begin() + position.index);
  if (entries.empty()) used_[position.bin / 64] &= ~(uint64_t{1} << (position.bin % 64));
}

void FreeSet::Clear() {
  for (int bin = UsedFrom(0); bin < kBins; bin = UsedFrom(bin + 1)) bins_[bin].clear();
  used_ = {};
}

FreeSet::Position FreeSet::Find(int64_t bytes) const {
  uint64_t units = static_cast<uint64_t>(bytes) >> kUnitShift;
  int bin = BinOf(units);
  if (bins_.empty() || bin >= kBins) return {};
  const std::vector<Entry>& entries = bins_[bin];
  auto smaller = std::partition_point(
      entries.begin(), entries.end(),
      [order = units << kSerialBits](const Entry& entry) { return entry.order >= order; });
  auto enough = static_cast<int32_t>(smaller - entries.begin());
  return enough > 0 ? Position{bin, enough - 1} : FirstFrom(bin + 1);
}

FreeSet::Position FreeSet::FirstFrom(int bin) const {
  bin = UsedFrom(bin);
  if (bin == kBins) return {};
  return {bin, static_cast<int32_t>(bins_[bin].size()) - 1};
}

FreeSet::Position FreeSet::Next(Position position) const {
  if (position.index > 0) return {position.bin, position.index - 1};
  return FirstFrom(position.bin + 1);
}

FreeSet::Position FreeSet::Last() const {
  int bin = UsedUpTo(kBins - 1);
  return bin < 0 ? Position{} : Position{bin, 0};
}

FreeSet::Position FreeSet::Previous(Position position) const {
  if (position.index + 1 < static_cast<int32_t>(bins_[position.bin].size())) {
    return {position.bin, position.index + 1};
  }
  int bin = UsedUpTo(position.bin - 1);
  return bin < 0 ? Position{} : Position{bin, 0};
}

}  // namespace hbmtune::memory

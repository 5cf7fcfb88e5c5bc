#include "kernels/memory/pinned_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/memory/rounding.h"

namespace hbmtune::memory {
namespace {

int64_t RoundUp(int64_t bytes) {
  constexpr int64_t kAlign = PinnedPool::kAlignBytes;
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

std::byte* HostPinnedSource::Allocate(int64_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void HostPinnedSource::Free(std::byte* memory, int64_t bytes) { munmap(memory, bytes); }

PinnedPool::PinnedPool(int64_t capacity_bytes, PinnedSource* source)
    : capacity_bytes_(RoundUp(capacity_bytes)), source_(source) {
  if (capacity_bytes < 0) throw std::invalid_argument("a pinned pool cannot have a negative size");
  if (capacity_bytes_ == 0) return;
  if (source_ != nullptr) {
    memory_ = source_->Allocate(capacity_bytes_);
    if (memory_ == nullptr) {
      throw OutOfMemory({.requested_bytes = capacity_bytes_}, "", "the pinned pool on the host");
    }
  }
  free_.emplace(0, capacity_bytes_);
}

PinnedPool::~PinnedPool() {
  if (memory_ != nullptr) source_->Free(memory_, capacity_bytes_);
}

PinnedPool::Slice PinnedPool::Take(int64_t bytes) {
  if (bytes < 0) throw std::invalid_argument("a slice cannot have a negative size");
  bytes = std::max(RoundUp(bytes), kAlignBytes);
  auto room = std::find_if(free_.begin(), free_.end(),
                           [bytes](const auto& range) { return range.second >= bytes; });
  if (room == free_.end()) {
    throw OutOfMemory({.requested_bytes = bytes,
                       .free_bytes = LargestFree(),
                       .capacity_bytes = capacity_bytes_,
                       .reserved_bytes = capacity_bytes_,
                       .allocated_bytes = used_bytes_},
                      "", "a slice of the pinned pool");
  }
  auto [offset, room_bytes] = *room;
  free_.erase(room);
  if (room_bytes > bytes) free_.emplace(offset + bytes, room_bytes - bytes);
  used_bytes_ += bytes;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
  return {memory_ == nullptr ? nullptr : memory_ + offset, offset, bytes};
}

void PinnedPool::Return(const Slice& slice) {
  int64_t offset = slice.offset;
  int64_t bytes = slice.bytes;
  used_bytes_ -= bytes;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  free_.emplace(offset, bytes);
}

int64_t PinnedPool::LargestFree() const {
  int64_t largest = 0;
  for (auto [offset, bytes] : free_) largest = std::max(largest, bytes);
  return largest;
}

int64_t PinnedPool::PyTorchBytes(std::span<const int64_t> sizes, const AllocatorConfig& config) {
  int64_t total = 0;
  for (int64_t bytes : sizes) total += RoundPinned(bytes, config);
  return total;
}

}  // namespace hbmtune::memory

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/memory/allocator_config.h"

namespace hbmtune::memory {

// Where the memory of a pinned pool comes from; a device registers it with its driver.
class PinnedSource {
 public:
  virtual ~PinnedSource() = default;
  // Page-locked host memory, at least 64-byte aligned; nullptr when the host does not have it.
  virtual std::byte* Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory, int64_t bytes) = 0;
};

// Ordinary page-aligned host memory: what the host device uses.
class HostPinnedSource final : public PinnedSource {
 public:
  std::byte* Allocate(int64_t bytes) override;
  void Free(std::byte* memory, int64_t bytes) override;
};

// Host memory that is allocated once, up front, and handed out in slices for copies to and from
// the device: first fit at the lowest offset, 64-byte aligned. One thread at a time.
class PinnedPool {
 public:
  static constexpr int64_t kAlignBytes = 64;

  // A slice of the pool; to be returned once. `bytes` is rounded up to 64.
  struct Slice {
    std::byte* data = nullptr;
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  // Throws OutOfMemory if the source does not have it. The source must outlive the pool; a pool
  // without source is accounting only (the modelled device): its slices have no data.
  PinnedPool(int64_t capacity_bytes, PinnedSource* source);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Throws OutOfMemory, naming pool, size and the largest free slice, when no slice is free.
  Slice Take(int64_t bytes);
  void Return(const Slice& slice);

  int64_t capacity_bytes() const { return capacity_bytes_; }
  int64_t used_bytes() const { return used_bytes_; }
  int64_t peak_used_bytes() const { return peak_used_bytes_; }

  // What PyTorch would lock for buffers of these sizes, each an allocation of its own that is
  // rounded up to a power of two, against capacity_bytes() here.
  static int64_t PyTorchBytes(std::span<const int64_t> sizes, const AllocatorConfig& config);

 private:
  int64_t LargestFree() const;

  int64_t capacity_bytes_;
  PinnedSource* source_;
  std::byte* memory_ = nullptr;
  std::map<int64_t, int64_t> free_;  // offset to bytes, neighbours joined
  int64_t used_bytes_ = 0;
  int64_t peak_used_bytes_ = 0;
};

}  // namespace hbmtune::memory

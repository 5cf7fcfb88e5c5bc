#pragma once

#include <string>

#include "kernels/memory/segment_source.h"

namespace hbmtune::memory {

// The end of a sentence that says what the host refused: where a limit on address space
// (RLIMIT_AS) holds, its value and how it is raised; empty without one.
std::string AddressSpaceHint();

// Host memory under a hard budget, with the addresses that the modelled device would give (plus a
// base): one arena of address space is reserved, and memory stands only behind live segments.
// Freed memory is given back to the kernel and cannot be touched.
class HostSource final : public SegmentSource {
 public:
  // Throws std::invalid_argument if the kernel refuses the arena, 32 times the budget: nothing is
  // wrong with the device, and no smaller trial of the same budget would go.
  explicit HostSource(int64_t budget_bytes);
  ~HostSource() override;
  HostSource(const HostSource&) = delete;
  HostSource& operator=(const HostSource&) = delete;

  Address Allocate(int64_t bytes) override;
  void Free(Address address, int64_t bytes) override;
  Address ReserveAddresses(int64_t bytes) override;
  void ReleaseAddresses(Address address, int64_t bytes) override;
  bool Map(Address address, int64_t bytes) override;
  void Unmap(Address address, int64_t bytes) override;
  int64_t capacity_bytes() const override { return budget_bytes_; }
  int64_t free_bytes() const override { return budget_bytes_ - used_bytes_; }

 private:
  Address ReserveOrThrow(int64_t bytes);

  int64_t budget_bytes_;
  int64_t used_bytes_ = 0;
  uint64_t arena_bytes_;
  void* arena_;
  AddressSpace addresses_;
};

}  // namespace hbmtune::memory

#pragma once

#include <limits>

#include "kernels/memory/segment_source.h"

namespace hbmtune::memory {

// A device that exists only as numbers: no memory is touched. Segments count in units of 2 MiB,
// as the AMD driver counts them.
class ModelledSource final : public SegmentSource {
 public:
  // `max_segment_bytes`: a single allocation over it is refused although there is room (HIP
  // refuses one that is larger than the host's physical memory).
  explicit ModelledSource(int64_t capacity_bytes,
                          int64_t max_segment_bytes = std::numeric_limits<int64_t>::max());

  Address Allocate(int64_t bytes) override;
  void Free(Address address, int64_t bytes) override;
  Address ReserveAddresses(int64_t bytes) override;
  void ReleaseAddresses(Address address, int64_t bytes) override;
  bool Map(Address address, int64_t bytes) override;
  void Unmap(Address address, int64_t bytes) override;
  int64_t capacity_bytes() const override { return capacity_bytes_; }
  int64_t free_bytes() const override { return capacity_bytes_ - used_bytes_; }

 private:
  bool Take(int64_t bytes);

  int64_t capacity_bytes_;
  int64_t max_segment_bytes_;
  int64_t used_bytes_ = 0;
  AddressSpace addresses_;
};

}  // namespace hbmtune::memory

#pragma once

#include <cstdint>

#include "kernels/memory/address_space.h"

namespace hbmtune::memory {

// The driver as the caching allocator sees it: whole segments, and virtual memory for expandable
// segments. One thread at a time. "No memory" is an answer, not an error; anything else that goes
// wrong throws DeviceError.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  // A new segment (hipMalloc), or 0 when the memory is not there.
  virtual Address Allocate(int64_t bytes) = 0;
  // Takes back a whole segment of that size; work that uses it has ended or is waited for.
  virtual void Free(Address address, int64_t bytes) = 0;

  // Address space without memory behind it (hipMemAddressReserve). Throws DeviceError when the
  // address space is exhausted.
  virtual Address ReserveAddresses(int64_t bytes) = 0;
  virtual void ReleaseAddresses(Address address, int64_t bytes) = 0;
  // Puts memory behind a part of a reserved range; false, with nothing changed, when it is not
  // there. Address and size are multiples of the segment's page.
  virtual bool Map(Address address, int64_t bytes) = 0;
  virtual void Unmap(Address address, int64_t bytes) = 0;

  // What the device has, and what it would still give.
  virtual int64_t capacity_bytes() const = 0;
  virtual int64_t free_bytes() const = 0;
};

}  // namespace hbmtune::memory

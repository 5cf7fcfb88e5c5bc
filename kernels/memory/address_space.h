#pragma once

#include <cstdint>
#include <map>

namespace hbmtune::memory {

using Address = uint64_t;  // 0 is no address

// Hands out address ranges, first fit at the lowest address, in units of 2 MiB (the unit in which
// the driver counts device memory). One policy for every source: PyTorch breaks ties between equal
// free blocks by address, so that the same sequence gives the same peak on every device.
class AddressSpace {
 public:
  static constexpr int64_t kUnitBytes = int64_t{2} << 20;

  // Addresses from `base` (a multiple of 2 MiB, not 0) up to `base + bytes`.
  AddressSpace(Address base, uint64_t bytes);

  // 0 when no range is long enough. `bytes` is rounded up to the unit.
  Address Reserve(int64_t bytes);
  // Takes back exactly what Reserve gave.
  void Release(Address address, int64_t bytes);

  static int64_t RoundUp(int64_t bytes) {
    return (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  }

 private:
  Address base_;
  Address end_;         // everything from here to limit_ was never handed out
  Address limit_;
  std::map<Address, int64_t> holes_;  // below end_, by address, neighbours joined
};

}  // namespace hbmtune::memory

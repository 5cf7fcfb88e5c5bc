#include "kernels/memory/address_space.h"

#include <iterator>

namespace hbmtune::memory {

AddressSpace::AddressSpace(Address base, uint64_t bytes)
    : base_(base), end_(base), limit_(base + bytes) {}

Address AddressSpace::Reserve(int64_t bytes) {
  bytes = RoundUp(bytes);
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second < bytes) continue;
    Address address = hole->first;
    int64_t rest = hole->second - bytes;
    auto next = holes_.erase(hole);
    if (rest > 0) holes_.emplace_hint(next, address + bytes, rest);
    return address;
  }
  if (limit_ - end_ < static_cast<uint64_t>(bytes)) return 0;
  Address address = end_;
  end_ += bytes;
  return address;
}

void AddressSpace::Release(Address address, int64_t bytes) {
  bytes = RoundUp(bytes);
  auto next = holes_.lower_bound(address);
  if (next != holes_.end() && address + bytes == next->first) {
    bytes += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == address) {
      address = previous->first;
      bytes += previous->second;
      holes_.erase(previous);
    }
  }
  if (address + bytes == end_) {
    end_ = address;
  } else {
    holes_.emplace(address, bytes);
  }
}

}  // namespace hbmtune::memory

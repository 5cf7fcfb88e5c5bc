#include "kernels/memory/modelled_source.h"

#include "kernels/core/error.h"

namespace hbmtune::memory {
namespace {

// The first address is not 0, and the space is what 47 bits leave: larger than any capacity
// times any number of expandable segments.
constexpr Address kBase = Address{1} << 40;
constexpr uint64_t kSpaceBytes = (uint64_t{1} << 56) - kBase;

}  // namespace

ModelledSource::ModelledSource(int64_t capacity_bytes, int64_t max_segment_bytes)
    : capacity_bytes_(capacity_bytes),
      max_segment_bytes_(max_segment_bytes),
      addresses_(kBase, kSpaceBytes) {}

bool ModelledSource::Take(int64_t bytes) {
  bytes = AddressSpace::RoundUp(bytes);
  if (bytes > free_bytes()) return false;
  used_bytes_ += bytes;
  return true;
}

Address ModelledSource::Allocate(int64_t bytes) {
  if (bytes > max_segment_bytes_ || !Take(bytes)) return 0;
  return addresses_.Reserve(bytes);
}

void ModelledSource::Free(Address address, int64_t bytes) {
  used_bytes_ -= AddressSpace::RoundUp(bytes);
  addresses_.Release(address, bytes);
}

Address ModelledSource::ReserveAddresses(int64_t bytes) {
  Address address = addresses_.Reserve(bytes);
  if (address == 0) throw DeviceError("the modelled device has no address space left");
  return address;
}

void ModelledSource::ReleaseAddresses(Address address, int64_t bytes) {
  addresses_.Release(address, bytes);
}

bool ModelledSource::Map(Address, int64_t bytes) { return Take(bytes); }

void ModelledSource::Unmap(Address, int64_t bytes) { used_bytes_ -= AddressSpace::RoundUp(bytes); }

}  // namespace hbmtune::memory

#include "kernels/memory/host_source.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/core/error.h"
#include "kernels/core/units.h"

namespace hbmtune::memory {
namespace {

// Every expandable segment reserves 1.125 × the budget; 32 times the budget is room for the two
// pools of 14 streams, and costs page-table entries only where memory is touched.
constexpr uint64_t kArenaPerBudget = 32;

void* ReserveArena(uint64_t bytes) {
  void* arena =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) {
    const std::string why = std::strerror(errno);
    throw std::invalid_argument("cannot reserve " + FormatBytes(static_cast<int64_t>(bytes)) +
                                " of address space for the host device, " +
                                std::to_string(kArenaPerBudget) + " times its memory: " + why +
                                AddressSpaceHint());
  }
  // Segments are whole 2 MiB pages anyway, and first touches by 4 KiB pages took half of a small
  // probe's start: 30 ms against 16 (tiny-llama, best of 15). A kernel without them is no error.
  madvise(arena, bytes, MADV_HUGEPAGE);
  return arena;
}

Address RoundUpToUnit(Address address) {
  constexpr Address kUnit = AddressSpace::kUnitBytes;
  return (address + kUnit - 1) / kUnit * kUnit;
}

void* Pointer(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace

std::string AddressSpaceHint() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return "; a process may have " + FormatBytes(static_cast<int64_t>(limit.rlim_cur)) +
         " of address space here (RLIMIT_AS): raise it with ulimit -v unlimited";
}

HostSource::HostSource(int64_t budget_bytes)
    : budget_bytes_(budget_bytes),
      arena_bytes_(AddressSpace::RoundUp(budget_bytes) * kArenaPerBudget +
                   AddressSpace::kUnitBytes),
      arena_(ReserveArena(arena_bytes_)),
      addresses_(RoundUpToUnit(reinterpret_cast<Address>(arena_)),
                 arena_bytes_ - AddressSpace::kUnitBytes) {}

HostSource::~HostSource() { munmap(arena_, arena_bytes_); }

Address HostSource::ReserveOrThrow(int64_t bytes) {
  Address address = addresses_.Reserve(bytes);
  if (address == 0) {
    throw DeviceError("the host device has no address space left for " + FormatBytes(bytes));
  }
  return address;
}

Address HostSource::Allocate(int64_t bytes) {
  if (AddressSpace::RoundUp(bytes) > free_bytes()) return 0;
  Address address = ReserveOrThrow(bytes);
  if (Map(address, AddressSpace::RoundUp(bytes))) return address;
  addresses_.Release(address, bytes);
  return 0;
}

void HostSource::Free(Address address, int64_t bytes) {
  Unmap(address, AddressSpace::RoundUp(bytes));
  addresses_.Release(address, bytes);
}

Address HostSource::ReserveAddresses(int64_t bytes) { return ReserveOrThrow(bytes); }

void HostSource::ReleaseAddresses(Address address, int64_t bytes) {
  addresses_.Release(address, bytes);
}

bool HostSource::Map(Address address, int64_t bytes) {
  if (bytes > free_bytes()) return false;
  if (mprotect(Pointer(address), bytes, PROT_READ | PROT_WRITE) != 0) return false;
  used_bytes_ += bytes;
  return true;
}

void HostSource::Unmap(Address address, int64_t bytes) {
  madvise(Pointer(address), bytes, MADV_DONTNEED);
  mprotect(Pointer(address), bytes, PROT_NONE);
  used_bytes_ -= bytes;
}

}  // namespace hbmtune::memory

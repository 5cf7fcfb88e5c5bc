#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace hbmtune {

// What was asked for and what there was, all in bytes.
struct MemoryShortage {
  int64_t requested_bytes = 0;  // what the tensor asked for
  int64_t segment_bytes = 0;    // what the allocator asked of the driver, 0 if it asked nothing
  int64_t free_bytes = 0;       // what the driver had left
  int64_t capacity_bytes = 0;   // the whole device or budget
  int64_t reserved_bytes = 0;   // held by the allocator
  int64_t allocated_bytes = 0;  // in live tensors
};

// The device cannot hold a tensor. Thrown by the caching allocator; the executor adds where.
class OutOfMemory : public std::runtime_error {
 public:
  explicit OutOfMemory(const MemoryShortage& shortage, std::string phase = "",
                       std::string op = "");

  const MemoryShortage& shortage() const { return shortage_; }
  const std::string& phase() const { return phase_; }  // "forward", …; empty if unknown
  const std::string& op() const { return op_; }        // "linear", …; empty if unknown

 private:
  MemoryShortage shortage_;
  std::string phase_;
  std::string op_;
};

// The device failed for a reason other than memory: lost, hung, or an error of its runtime.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace hbmtune

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "kernels/core/dtype.h"
#include "kernels/core/shape.h"

namespace hbmtune {

// Constants of one call (heads, scale, epsilon, seed …). Each op's room defines its own plain
// struct; a Program carries it as bytes, so that an instruction stays data.
class Attrs {
 public:
  static constexpr size_t kMaxBytes = 64;

  Attrs() = default;

  template <class T>
  static Attrs Of(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMaxBytes);
    Attrs attrs;
    std::memcpy(attrs.bytes_, &value, sizeof(T));
    return attrs;
  }

  template <class T>
  T As() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMaxBytes);
    T value;
    std::memcpy(&value, bytes_, sizeof(T));
    return value;
  }

  friend bool operator==(const Attrs& a, const Attrs& b) {
    return std::memcmp(a.bytes_, b.bytes_, kMaxBytes) == 0;
  }

 private:
  alignas(8) unsigned char bytes_[kMaxBytes] = {};
};

// One tensor of a call: where it is and how it is laid out. `data` is null on the modelled
// device. Strides are in elements and may be 0 (broadcast).
struct TensorArg {
  void* data = nullptr;
  Dtype dtype = Dtype::kF32;
  Dims shape;
  Dims strides;

  int64_t elements() const { return ElementCount(shape); }
  int64_t bytes() const { return elements() * SizeOf(dtype); }
  bool dense() const { return strides == DenseStrides(shape); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct OpArgs {
  std::span<const TensorArg> in;
  std::span<const TensorArg> out;
  Attrs attrs;
};

// Which measured curve of a device profile prices an op, and which component of the search's
// correction it belongs to.
enum class CostClass : uint8_t { kMatmul, kAttention, kMemory, kOptimizer, kReduction };

// Work of one call, from shapes alone.
struct Cost {
  CostClass kind = CostClass::kMemory;
  double flops = 0;          // multiply and add count 2
  double bytes_read = 0;
  double bytes_written = 0;
  int64_t m = 0, n = 0, k = 0;  // of a matrix product, for shape-dependent efficiency
  int kernels = 1;              // launches on a GPU
};

// A kernel of a GPU, found by name in the code object of the architecture. None yet: ops leave
// it null until the HIP device exists.
struct HipKernel;

// An op is a room: one constexpr OpKind in kernels/ops/<name>/, listed in ops/table.h.
struct OpKind {
  std::string_view name;
  // Throws std::invalid_argument that names the tensor and both shapes when args do not fit.
  void (*check)(const OpArgs&);
  Cost (*cost)(const OpArgs&);
  // Computes on the CPU. Outputs overlap inputs only where the room says so. Deterministic:
  // the result does not depend on the number of threads.
  void (*host)(const OpArgs&);
  const HipKernel* hip = nullptr;
};

}  // namespace hbmtune

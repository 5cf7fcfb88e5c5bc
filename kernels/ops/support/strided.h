#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ops/support/rows.h"
#include "kernels/program/op_kind.h"

// Plain loops over strided, broadcast tensors for the ops of other frameworks' programs: they run
// on the host to prove a lowering right, not to be fast.
namespace hbmtune::ops {

// Element number `index` (row-major over `shape`) of a tensor of those strides.
inline int64_t OffsetOf(int64_t index, const Dims& shape, const Dims& strides) {
  int64_t offset = 0;
  for (size_t d = shape.rank(); d-- > 0;) {
    offset += index % shape[d] * strides[d];
    index /= shape[d];
  }
  return offset;
}

// Strides under which `tensor` is read over the larger `shape`: 0 where it is repeated.
inline Dims BroadcastStrides(const TensorArg& tensor, const Dims& shape) {
  Dims strides = shape;
  const size_t missing = shape.rank() - tensor.shape.rank();
  for (size_t d = 0; d < shape.rank(); ++d) {
    const bool own = d >= missing && tensor.shape[d - missing] != 1;
    strides[d] = own ? tensor.strides[d - missing] : 0;
  }
  return strides;
}

// StoreScalar, for int64 too.
inline void StoreElement(const TensorArg& tensor, double value, int64_t index) {
  if (tensor.dtype == Dtype::kI64) {
    tensor.as<int64_t>()[index] = static_cast<int64_t>(value);
  } else {
    StoreScalar(tensor, value, index);
  }
}

// Whether `from` can be repeated to `to`: trailing extents are equal or 1.
inline bool Broadcasts(const Dims& from, const Dims& to) {
  if (from.rank() > to.rank()) return false;
  for (size_t i = 1; i <= from.rank(); ++i) {
    const int64_t extent = from[from.rank() - i];
    if (extent != 1 && extent != to[to.rank() - i]) return false;
  }
  return true;
}

}  // namespace hbmtune::ops

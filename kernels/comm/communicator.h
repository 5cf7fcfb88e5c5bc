#pragma once

#include <cstdint>

#include "kernels/program/op_kind.h"

namespace hbmtune::comm {

// The ranks that train together. Every rank makes the same calls in the same order, from one
// thread at a time. Tensors are dense; in-place where data pointers are equal. Sums are taken in
// rank order with fp32 (fp64 for fp64) accumulation, so that an element's sum does not depend on
// how tensors were cut into buckets. Throws DeviceError that names the rank that was lost.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // to = Σ over ranks of from; same shape.
  virtual void AllReduce(const TensorArg& from, const TensorArg& to) = 0;
  // to = this rank's part of Σ from; from has size() × as many elements as to.
  virtual void ReduceScatter(const TensorArg& from, const TensorArg& to) = 0;
  // to = the ranks' from's, one after the other; to has size() × as many elements as from.
  virtual void AllGather(const TensorArg& from, const TensorArg& to) = 0;
  // to = from of the root.
  virtual void Broadcast(const TensorArg& from, const TensorArg& to, uint32_t root) = 0;
};

}  // namespace hbmtune::comm

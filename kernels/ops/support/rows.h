#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops/support/check.h"
#include "kernels/program/op_kind.h"

// Rows of any floating dtype seen as rows of the arithmetic type C, float or double. A tensor that
// already is of that type is read and written where it lies; another goes through a buffer of the
// thread, which stays in the first-level cache. So a kernel's loop is written once, for C.
namespace hbmtune::ops {

// One tensor operand of a kernel: gives it rows. `slot` tells the buffers of one kernel apart.
template <class C>
class RowOperand {
 public:
  static constexpr int kSlots = 8;

  RowOperand(const TensorArg& tensor, int slot);

  // `n` elements from `offset` on, to be read.
  const C* Read(int64_t offset, int64_t n) const;
  // The same to be written; what is there is undefined until written. Commit() when done.
  C* Write(int64_t offset, int64_t n) const;
  // The same to be read and written.
  C* Update(int64_t offset, int64_t n) const;
  void Commit(const C* row, int64_t offset, int64_t n) const;

 private:
  char* data_;
  Dtype dtype_;
  int slot_;
  bool direct_;
};

// A tensor whose rows may be further apart than they are long.
template <class C>
class StridedRows {
 public:
  StridedRows(const TensorArg& tensor, int slot)
      : operand_(tensor, slot), stride_(FoldRows(tensor).stride) {}

  // `n` elements of row `row` from column `at` on; see RowOperand.
  const C* Read(int64_t row, int64_t at, int64_t n) const {
    return operand_.Read(row * stride_ + at, n);
  }
  C* Write(int64_t row, int64_t at, int64_t n) const {
    return operand_.Write(row * stride_ + at, n);
  }
  void Commit(const C* values, int64_t row, int64_t at, int64_t n) const {
    operand_.Commit(values, row * stride_ + at, n);
  }

 private:
  RowOperand<C> operand_;
  int64_t stride_;
};

extern template class RowOperand<float>;
extern template class RowOperand<double>;

// `n` elements of the thread's own memory, 64-byte aligned, valid until the next call with the same
// slot in the same thread. Slots from RowOperand<C>::kSlots on are free for kernels.
template <class C>
C* ThreadScratch(int slot, int64_t n);

// Converts `n` elements; neither range overlaps the other unless equal.
template <class C>
void ReadElements(const void* from, Dtype dtype, C* to, int64_t n);
template <class C>
void WriteElements(const C* from, void* to, Dtype dtype, int64_t n);

inline void* ElementAt(const TensorArg& tensor, int64_t index) {
  return tensor.as<char>() + index * SizeOf(tensor.dtype);
}

// Calls fn(float{}) or fn(double{}), the arithmetic type of the call.
template <class Fn>
void WithArithmetic(const OpArgs& args, Fn&& fn) {
  if (AnyF64(args)) {
    fn(double{});
  } else {
    fn(float{});
  }
}

// Elements that an elementwise kernel takes at a time: three fp32 operands fit in 32 KiB.
inline constexpr int64_t kElementBlock = 2048;

// A scalar of any floating dtype or int64, on the host device.
double LoadScalar(const TensorArg& tensor, int64_t index = 0);
void StoreScalar(const TensorArg& tensor, double value, int64_t index = 0);

}  // namespace hbmtune::ops

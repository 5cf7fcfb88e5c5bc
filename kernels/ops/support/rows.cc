#include "kernels/ops/support/rows.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>

#include "kernels/core/float16.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

struct FreeDeleter {
  void operator()(void* pointer) const { std::free(pointer); }
};

struct Buffer {
  std::unique_ptr<void, FreeDeleter> data;
  int64_t bytes = 0;

  void* Reserve(int64_t wanted) {
    if (wanted > bytes) {
      bytes = (wanted + 4095) / 4096 * 4096;
      data.reset(std::aligned_alloc(64, static_cast<size_t>(bytes)));
      if (!data) throw std::bad_alloc();
    }
    return data.get();
  }
};

template <class C>
constexpr Dtype kDtypeOf = std::is_same_v<C, double> ? Dtype::kF64 : Dtype::kF32;

HBMTUNE_VECTOR_CLONES void Convert(const Bf16* from, float* to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = Widen(from[i]);
}
HBMTUNE_VECTOR_CLONES void Convert(const F16* from, float* to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = Widen(from[i]);
}
HBMTUNE_VECTOR_CLONES void Convert(const float* from, Bf16* to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = NarrowToBf16(from[i]);
}
HBMTUNE_VECTOR_CLONES void Convert(const float* from, F16* to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = NarrowToF16(from[i]);
}
HBMTUNE_VECTOR_CLONES void Convert(const float* from, double* to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}
HBMTUNE_VECTOR_CLONES void Convert(const double* from, float* to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}
// fp64 beside 16 bit occurs in references only; speed does not matter.
void Convert(const Bf16* from, double* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = Widen(from[i]);
}
void Convert(const F16* from, double* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = Widen(from[i]);
}
void Convert(const double* from, Bf16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = NarrowToBf16(static_cast<float>(from[i]));
}
void Convert(const double* from, F16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = NarrowToF16(static_cast<float>(from[i]));
}
template <class C>
void Convert(const C* from, C* to, int64_t n) {
  if (from != to) std::memcpy(to, from, static_cast<size_t>(n) * sizeof(C));
}

[[noreturn]] void NotFloating(Dtype dtype) {
  throw std::invalid_argument("arithmetic on " + std::string(Name(dtype)) +
                              " elements, which are not floating");
}

}  // namespace

template <class C>
void ReadElements(const void* from, Dtype dtype, C* to, int64_t n) {
  switch (dtype) {
    case Dtype::kF32: return Convert(static_cast<const float*>(from), to, n);
    case Dtype::kBf16: return Convert(static_cast<const Bf16*>(from), to, n);
    case Dtype::kF16: return Convert(static_cast<const F16*>(from), to, n);
    case Dtype::kF64: return Convert(static_cast<const double*>(from), to, n);
    default: NotFloating(dtype);
  }
}

template <class C>
void WriteElements(const C* from, void* to, Dtype dtype, int64_t n) {
  switch (dtype) {
    case Dtype::kF32: return Convert(from, static_cast<float*>(to), n);
    case Dtype::kBf16: return Convert(from, static_cast<Bf16*>(to), n);
    case Dtype::kF16: return Convert(from, static_cast<F16*>(to), n);
    case Dtype::kF64: return Convert(from, static_cast<double*>(to), n);
    default: NotFloating(dtype);
  }
}

template void ReadElements(const void*, Dtype, float*, int64_t);
template void ReadElements(const void*, Dtype, double*, int64_t);
template void WriteElements(const float*, void*, Dtype, int64_t);
template void WriteElements(const double*, void*, Dtype, int64_t);

template <class C>
C* ThreadScratch(int slot, int64_t n) {
  constexpr size_t kAllSlots = 24;
  static thread_local std::array<Buffer, kAllSlots> buffers;
  return static_cast<C*>(
      buffers.at(static_cast<size_t>(slot)).Reserve(n * static_cast<int64_t>(sizeof(C))));
}
template float* ThreadScratch(int, int64_t);
template double* ThreadScratch(int, int64_t);

template <class C>
RowOperand<C>::RowOperand(const TensorArg& tensor, int slot)
    : data_(tensor.as<char>()),
      dtype_(tensor.dtype),
      slot_(slot),
      direct_(tensor.dtype == kDtypeOf<C>) {}

template <class C>
const C* RowOperand<C>::Read(int64_t offset, int64_t n) const {
  return Update(offset, n);
}

template <class C>
C* RowOperand<C>::Write(int64_t offset, int64_t n) const {
  if (direct_) return reinterpret_cast<C*>(data_) + offset;
  return ThreadScratch<C>(slot_, n);
}

template <class C>
C* RowOperand<C>::Update(int64_t offset, int64_t n) const {
  C* row = Write(offset, n);
  if (!direct_) ReadElements(data_ + offset * SizeOf(dtype_), dtype_, row, n);
  return row;
}

template <class C>
void RowOperand<C>::Commit(const C* row, int64_t offset, int64_t n) const {
  if (!direct_) WriteElements(row, data_ + offset * SizeOf(dtype_), dtype_, n);
}

template class RowOperand<float>;
template class RowOperand<double>;

double LoadScalar(const TensorArg& tensor, int64_t index) {
  if (tensor.dtype == Dtype::kI64) return static_cast<double>(tensor.as<int64_t>()[index]);
  double value = 0;
  ReadElements(tensor.as<char>() + index * SizeOf(tensor.dtype), tensor.dtype, &value, 1);
  return value;
}

void StoreScalar(const TensorArg& tensor, double value, int64_t index) {
  WriteElements(&value, tensor.as<char>() + index * SizeOf(tensor.dtype), tensor.dtype, 1);
}

}  // namespace hbmtune::ops

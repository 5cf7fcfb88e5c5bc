#include "kernels/ops/support/leaves.h"

#include <limits>

#include "kernels/ops/support/vector_math.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

template <class C>
HBMTUNE_INLINE void AddToBody(C* y, const C* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

template <class C>
HBMTUNE_INLINE void AddScaledToBody(C* y, C factor, const C* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

template <class C>
HBMTUNE_INLINE void ScaleBody(const C* x, C factor, C* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

template <class C>
HBMTUNE_INLINE void AddConstantBody(C* y, C constant, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += constant;
}

template <class C>
HBMTUNE_INLINE void MultiplyBody(const C* a, const C* b, C* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

template <class C>
HBMTUNE_INLINE C SumBody(const C* x, int64_t n) {
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

template <class C>
HBMTUNE_INLINE C DotBody(const C* a, const C* b, int64_t n) {
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class C>
HBMTUNE_INLINE C MaxBody(const C* x, int64_t n) {
  C largest = -std::numeric_limits<C>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

template <class C>
HBMTUNE_INLINE C ExpBody(const C* x, C scale, C shift, C* y, int64_t n) {
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const C value = Exp(scale * x[i] - shift);
    y[i] = value;
    sum += value;
  }
  return sum;
}

}  // namespace

HBMTUNE_VECTOR_CLONES void AddTo(float* y, const float* x, int64_t n) { AddToBody(y, x, n); }
HBMTUNE_VECTOR_CLONES void AddTo(double* y, const double* x, int64_t n) { AddToBody(y, x, n); }

HBMTUNE_VECTOR_CLONES void AddScaledTo(float* y, float factor, const float* x, int64_t n) {
  AddScaledToBody(y, factor, x, n);
}
HBMTUNE_VECTOR_CLONES void AddScaledTo(double* y, double factor, const double* x, int64_t n) {
  AddScaledToBody(y, factor, x, n);
}

HBMTUNE_VECTOR_CLONES void ScaleRow(const float* x, float factor, float* y, int64_t n) {
  ScaleBody(x, factor, y, n);
}
HBMTUNE_VECTOR_CLONES void ScaleRow(const double* x, double factor, double* y, int64_t n) {
  ScaleBody(x, factor, y, n);
}

HBMTUNE_VECTOR_CLONES void AddConstant(float* y, float constant, int64_t n) {
  AddConstantBody(y, constant, n);
}
HBMTUNE_VECTOR_CLONES void AddConstant(double* y, double constant, int64_t n) {
  AddConstantBody(y, constant, n);
}

HBMTUNE_VECTOR_CLONES void MultiplyRow(const float* a, const float* b, float* y, int64_t n) {
  MultiplyBody(a, b, y, n);
}
HBMTUNE_VECTOR_CLONES void MultiplyRow(const double* a, const double* b, double* y, int64_t n) {
  MultiplyBody(a, b, y, n);
}

HBMTUNE_VECTOR_CLONES float SumRow(const float* x, int64_t n) { return SumBody(x, n); }
HBMTUNE_VECTOR_CLONES double SumRow(const double* x, int64_t n) { return SumBody(x, n); }

HBMTUNE_VECTOR_CLONES float DotRow(const float* a, const float* b, int64_t n) {
  return DotBody(a, b, n);
}
HBMTUNE_VECTOR_CLONES double DotRow(const double* a, const double* b, int64_t n) {
  return DotBody(a, b, n);
}

HBMTUNE_VECTOR_CLONES float MaxRow(const float* x, int64_t n) { return MaxBody(x, n); }
HBMTUNE_VECTOR_CLONES double MaxRow(const double* x, int64_t n) { return MaxBody(x, n); }

HBMTUNE_VECTOR_CLONES float ExpRow(const float* x, float scale, float shift, float* y,
                                   int64_t n) {
  return ExpBody(x, scale, shift, y, n);
}
HBMTUNE_VECTOR_CLONES double ExpRow(const double* x, double scale, double shift, double* y,
                                    int64_t n) {
  return ExpBody(x, scale, shift, y, n);
}

}  // namespace hbmtune::ops

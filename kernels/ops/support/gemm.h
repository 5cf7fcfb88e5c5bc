#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"

namespace hbmtune::ops {

// A matrix in memory: element (i, j) at data + i · row_stride + j · column_stride, one of the
// strides being 1. A transposed matrix is the same memory with the strides exchanged.
struct Matrix {
  void* data = nullptr;
  Dtype dtype = Dtype::kF32;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};

// c[M, N] = alpha · a[M, K] · b[K, N] + beta · c. Floating dtypes; c's rows have stride 1. Sums
// in fp32, or in fp64 if a is. The work is cut into tiles by shape alone and each tile is computed
// by one thread, so the result does not depend on the number of threads. On any thread.
struct Product {
  Matrix a, b, c;
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1;
  double beta = 0;
};
void Multiply(const Product& product);

// The same by the calling thread alone (for kernels that have cut their work already).
void MultiplyOnThisThread(const Product& product);

}  // namespace hbmtune::ops

#include "kernels/ops/support/gemm.h"

#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <string>

#include "kernels/core/error.h"
#include "kernels/ops/support/gemm_bf16.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

// Buffers of the thread.
constexpr int kSlotRow = 8;
constexpr int kSlotA = 9;
constexpr int kSlotB = 10;
constexpr int kSlotC = 11;

// oneDNN computes alone in the calling thread while this lives.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

Matrix At(const Matrix& matrix, int64_t row, int64_t column) {
  Matrix part = matrix;
  part.data = static_cast<char*>(matrix.data) +
              (row * matrix.row_stride + column * matrix.column_stride) * SizeOf(matrix.dtype);
  return part;
}

// Plain loops, ordered so that the innermost runs along memory: along a row of b, or along a column
// of it that is a row in memory.
void MultiplyF64(const Product& p) {
  const auto* a = static_cast<const double*>(p.a.data);
  const auto* b = static_cast<const double*>(p.b.data);
  double* a_row = ThreadScratch<double>(kSlotRow, p.k);
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t l = 0; l < p.k; ++l) {
      a_row[l] = p.alpha * a[i * p.a.row_stride + l * p.a.column_stride];
    }
    double* c_row = static_cast<double*>(p.c.data) + i * p.c.row_stride;
    for (int64_t j = 0; j < p.n; ++j) c_row[j] = p.beta == 0 ? 0 : p.beta * c_row[j];
    if (p.b.column_stride == 1) {
      for (int64_t l = 0; l < p.k; ++l) AddScaledTo(c_row, a_row[l], b + l * p.b.row_stride, p.n);
    } else {
      for (int64_t j = 0; j < p.n; ++j) c_row[j] += DotRow(a_row, b + j * p.b.column_stride, p.k);
    }
  }
}

void MultiplyF32(const Product& p) {
  const bool a_plain = p.a.column_stride == 1;
  const bool b_plain = p.b.column_stride == 1;
  // A leading dimension may not be under the row length, even of a single row.
  const int64_t lda = std::max(a_plain ? p.a.row_stride : p.a.column_stride, a_plain ? p.k : p.m);
  const int64_t ldb = std::max(b_plain ? p.b.row_stride : p.b.column_stride, b_plain ? p.n : p.k);
  const dnnl_status_t status =
      dnnl_sgemm(a_plain ? 'N' : 'T', b_plain ? 'N' : 'T', p.m, p.n, p.k,
                 static_cast<float>(p.alpha), static_cast<const float*>(p.a.data), lda,
                 static_cast<const float*>(p.b.data), ldb, static_cast<float>(p.beta),
                 static_cast<float*>(p.c.data), std::max(p.c.row_stride, p.n));
  if (status != dnnl_success) {
    throw DeviceError("oneDNN's sgemm failed with status " + std::to_string(status));
  }
}

// The matrix as type C: itself, or a copy in the thread's scratch with the same orientation.
template <class C>
Matrix Converted(const Matrix& matrix, int64_t rows, int64_t columns, int slot) {
  const Dtype wanted = sizeof(C) == 8 ? Dtype::kF64 : Dtype::kF32;
  if (matrix.dtype == wanted) return matrix;
  const bool plain = matrix.column_stride == 1;
  const int64_t lines = plain ? rows : columns;
  const int64_t length = plain ? columns : rows;
  const int64_t stride = plain ? matrix.row_stride : matrix.column_stride;
  C* copy = ThreadScratch<C>(slot, lines * length);
  const char* from = static_cast<const char*>(matrix.data);
  for (int64_t i = 0; i < lines; ++i) {
    ReadElements(from + i * stride * SizeOf(matrix.dtype), matrix.dtype, copy + i * length,
                 length);
  }
  return {copy, wanted, plain ? length : 1, plain ? 1 : length};
}

template <class C>
void MultiplyConverted(const Product& product) {
  Product p = product;
  p.a = Converted<C>(product.a, p.m, p.k, kSlotA);
  p.b = Converted<C>(product.b, p.k, p.n, kSlotB);
  const bool narrow = product.c.dtype != p.a.dtype;
  if (narrow) p.c = {ThreadScratch<C>(kSlotC, p.m * p.n), p.a.dtype, p.n, 1};
  const auto row_of_c = [&](int64_t i) { return At(product.c, i, 0).data; };
  C* copy = static_cast<C*>(p.c.data);
  if (narrow && p.beta != 0) {
    for (int64_t i = 0; i < p.m; ++i) {
      ReadElements(row_of_c(i), product.c.dtype, copy + i * p.n, p.n);
    }
  }
  if constexpr (sizeof(C) == 8) {
    MultiplyF64(p);
  } else {
    MultiplyF32(p);
  }
  if (!narrow) return;
  for (int64_t i = 0; i < p.m; ++i) {
    WriteElements(copy + i * p.n, row_of_c(i), product.c.dtype, p.n);
  }
}

}  // namespace

void MultiplyOnThisThread(const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  const OneThread guard;
  if (MultipliesBf16(product)) return MultiplyBf16(product);
  if (product.a.dtype == Dtype::kF64 || product.b.dtype == Dtype::kF64 ||
      product.c.dtype == Dtype::kF64) {
    MultiplyConverted<double>(product);
  } else {
    MultiplyConverted<float>(product);
  }
}

namespace {

// Pieces of at most `most`, as equal as multiples of `step` allow, and an even number of them:
// few threads get equal shares.
int64_t EvenPiece(int64_t extent, int64_t most, int64_t step) {
  int64_t pieces = (extent + most - 1) / most;
  if (pieces > 1) pieces += pieces % 2;
  return ((extent + pieces - 1) / pieces + step - 1) / step * step;
}

struct TileShape {
  int64_t rows, columns;
};

// By shape alone, so that sums do not depend on the number of threads. 256 × 1024 of c: packing a
// and b anew for each tile costs nothing that can be measured (from K = 512 on, Zen 4). What would
// be a single tile is two, or a second thread had nothing to do: 1.9 times as fast from 64 × 128 ×
// 128 on.
TileShape TileOf(const Product& product) {
  TileShape tile{EvenPiece(product.m, 256, 16), EvenPiece(product.n, 1024, 64)};
  if (tile.rows < product.m || tile.columns < product.n) return tile;
  constexpr int64_t kWorthTwo = 1 << 20;  // multiplications: some 10 µs of one thread
  if (product.m * product.n * product.k < kWorthTwo) return tile;
  if (product.n >= 128) {
    tile.columns = EvenPiece(product.n, (product.n + 1) / 2, 64);
  } else if (product.m >= 32) {
    tile.rows = EvenPiece(product.m, (product.m + 1) / 2, 16);
  }
  return tile;
}

}  // namespace

void Multiply(const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  const auto [rows, columns] = TileOf(product);
  const int64_t row_tiles = (product.m + rows - 1) / rows;
  const int64_t column_tiles = (product.n + columns - 1) / columns;
  ParallelForDynamic(row_tiles * column_tiles, [&](int64_t tile) {
    const int64_t row = tile % row_tiles * rows;
    const int64_t column = tile / row_tiles * columns;
    Product part = product;
    part.m = std::min(rows, product.m - row);
    part.n = std::min(columns, product.n - column);
    part.a = At(product.a, row, 0);
    part.b = At(product.b, 0, column);
    part.c = At(product.c, row, column);
    MultiplyOnThisThread(part);
  });
}

}  // namespace hbmtune::ops

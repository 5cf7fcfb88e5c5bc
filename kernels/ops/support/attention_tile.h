#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "kernels/ops/support/attention.h"
#include "kernels/ops/support/check.h"
#include "kernels/ops/support/gemm.h"
#include "kernels/ops/support/philox.h"
#include "kernels/ops/support/rows.h"

// What the attention rooms share: the geometry of one call, its mask and its dropout.
namespace hbmtune::ops {

// q, k and v fit each other: [B, S, H, D] and [B, S, Hkv, D] with H a multiple of Hkv.
void CheckHeads(const Check& check, const TensorArg& q, const TensorArg& k, const TensorArg& v);
// Throws unless 0 ≤ dropout < 1 with its key, scale > 0, and documents come with their starts.
// Inputs [key_index, …) are the key, if dropout is on, and the starts, if there are documents.
void CheckAttentionAttrs(const Check& check, const OpArgs& args, size_t key_index);
// What the optional input at key_index is, for Check.
std::string_view FirstOptionalName(const OpArgs& args);
// dq, dk, dv are like q, k, v.
void CheckHeadGradients(const Check& check, const OpArgs& args, size_t q_index);

// Work of `products` matrix products of the size of the scores: 2·B·H·S²·D each, half of it if
// causal, less with a window.
Cost AttentionCost(const OpArgs& args, const TensorArg& q, int products);

// Columns [begin, end).
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

struct AttentionShape {
  AttentionAttrs attrs;
  int64_t batch = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;
  const int64_t* starts = nullptr;  // [B, S] with documents

  static AttentionShape Of(const OpArgs& args, const TensorArg& q, const TensorArg& k);

  int64_t group() const { return heads / kv_heads; }
  // Keys that query s of sequence b sees.
  KeyRange Keys(int64_t b, int64_t s) const {
    const int64_t start = starts == nullptr ? 0 : starts[b * length + s];
    return {attrs.window > 0 ? std::max<int64_t>(start, s - attrs.window + 1) : start,
            attrs.causal ? s + 1 : length};
  }
  // Keys that any of the queries [begin, end) sees; starts ascend.
  KeyRange Keys(int64_t b, int64_t begin, int64_t end) const {
    return {Keys(b, begin).begin, Keys(b, end - 1).end};
  }
  // Where the scores (b, h, s, 0 …) are among all scores.
  int64_t ScoreIndex(int64_t b, int64_t h, int64_t s) const {
    return ((b * heads + h) * length + s) * length;
  }
  // What dropout counts them by: rows begin at whole groups of four.
  int64_t DropoutIndex(int64_t b, int64_t h, int64_t s) const {
    return ((b * heads + h) * length + s) * ((length + 3) / 4 * 4);
  }
};

// Rows [s, …) of one head of a [B, S, H, D] tensor as a matrix.
inline Matrix HeadRows(const TensorArg& tensor, int64_t b, int64_t h, int64_t s) {
  const int64_t offset =
      b * tensor.strides[0] + h * tensor.strides[2] + s * tensor.strides[1];
  return {tensor.as<char>() + offset * SizeOf(tensor.dtype), tensor.dtype, tensor.strides[1], 1};
}

inline Matrix Transpose(const Matrix& matrix) {
  return {matrix.data, matrix.dtype, matrix.column_stride, matrix.row_stride};
}

// A row of scores before its softmax, columns [key, key + n) of which `seen` are not masked: those
// that count become a range that begins and ends at a whole vector (16 columns) where the row
// allows it, masked columns in it −∞ and those outside 0: no odd elements at the ends of causal
// rows, which a vector loop takes one by one.
template <class C>
KeyRange MaskRow(C* row, const KeyRange& seen, int64_t key, int64_t n) {
  constexpr int64_t kVector = 16;
  const int64_t first = std::clamp<int64_t>(seen.begin - key, 0, n);
  const int64_t last = std::clamp<int64_t>(seen.end - key, first, n);
  if (first == last) {
    std::fill_n(row, n, C(0));
    return {0, 0};
  }
  const KeyRange range = {first / kVector * kVector,
                          std::min((last + kVector - 1) / kVector * kVector, n)};
  std::fill(row, row + range.begin, C(0));
  std::fill(row + range.begin, row + first, -std::numeric_limits<C>::infinity());
  std::fill(row + last, row + range.end, -std::numeric_limits<C>::infinity());
  std::fill(row + range.end, row + n, C(0));
  return range;
}

// A tile of scores as the next product takes it: as it is, or rounded to bf16 in `narrow` (of the
// same size) if q, k and v are bf16, so that the product is one of bf16.
template <class C>
Matrix TileOperand(const C* tile, int64_t rows, int64_t columns, Dtype dtype, C* narrow) {
  if (dtype != Dtype::kBf16) {
    return {const_cast<C*>(tile), sizeof(C) == 8 ? Dtype::kF64 : Dtype::kF32, columns, 1};
  }
  WriteElements(tile, narrow, Dtype::kBf16, rows * columns);
  return {narrow, Dtype::kBf16, columns, 1};
}

// The dropout of the call, or nothing.
std::optional<DropoutMask> AttentionDropout(const OpArgs& args, size_t key_index);

}  // namespace hbmtune::ops

#include <algorithm>
#include <vector>

#include "kernels/ops/attention_tiled/tile_kernels.h"
#include "kernels/ops/support/attention_tile.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

constexpr int kSlotProbabilities = 12;
constexpr int kSlotGradient = 13;
constexpr int kSlotMask = 14;
constexpr int kSlotDq = 15;
constexpr int kSlotDk = 16;
constexpr int kSlotDv = 17;
constexpr int kSlotNarrow = 18;

// The gradient of q·kᵀ, scale · p · (dp − delta), into dp. The scale belongs here: as a factor of
// the two products that follow it costs oneDNN's bf16 code another pass over each.
template <class C>
HBMTUNE_INLINE void ScoreGradientBody(const C* p, C scale, C delta, C* dp, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dp[i] = scale * p[i] * (dp[i] - delta);
}
HBMTUNE_VECTOR_CLONES void ScoreGradient(const float* p, float scale, float delta, float* dp,
                                         int64_t n) {
  ScoreGradientBody(p, scale, delta, dp, n);
}
HBMTUNE_VECTOR_CLONES void ScoreGradient(const double* p, double scale, double delta, double* dp,
                                         int64_t n) {
  ScoreGradientBody(p, scale, delta, dp, n);
}

// Rows [s, s + rows) of one head of a [B, S, H, D] tensor.
struct HeadBlock {
  int64_t b, head, s, rows;
};

template <class C>
void StoreRows(const C* rows, const TensorArg& tensor, const HeadBlock& block) {
  const int64_t width = tensor.shape[3];
  for (int64_t r = 0; r < block.rows; ++r) {
    const Matrix row = HeadRows(tensor, block.b, block.head, block.s + r);
    WriteElements(rows + r * width, row.data, tensor.dtype, width);
  }
}

// Some query heads of one key-value head of one sequence: dq of each, and their share of dk and dv,
// [length, head_dim] each, summed by heads and then blocks of queries, ascending.
template <class C>
class QueryHeads {
 public:
  QueryHeads(const OpArgs& args, const AttentionShape& shape, int64_t b, int64_t kv_head)
      : args_(args), shape_(shape), mask_(AttentionDropout(args, 6)), b_(b), kv_head_(kv_head),
        p_(ThreadScratch<C>(kSlotProbabilities, kQueryBlock * kKeyBlock)),
        dp_(ThreadScratch<C>(kSlotGradient, kQueryBlock * kKeyBlock)),
        dq_(ThreadScratch<C>(kSlotDq, kQueryBlock * shape.head_dim)) {}

  void Run(int64_t first, int64_t last, C* dk, C* dv) {
    dk_ = dk;
    dv_ = dv;
    std::fill_n(dk, shape_.length * shape_.head_dim, C(0));
    std::fill_n(dv, shape_.length * shape_.head_dim, C(0));
    for (int64_t h = first; h < last; ++h) {
      for (int64_t s = 0; s < shape_.length; s += kQueryBlock) {
        Block(h, s, std::min(kQueryBlock, shape_.length - s));
      }
    }
  }

 private:
  static constexpr Dtype kDtype = sizeof(C) == 8 ? Dtype::kF64 : Dtype::kF32;

  Matrix Scratch(C* data, int64_t columns) const { return {data, kDtype, columns, 1}; }
  C* RowStatistic(const TensorArg& tensor, int64_t h, int64_t s) const {
    return tensor.template as<C>() + (b_ * shape_.heads + h) * shape_.length + s;
  }

  void Block(int64_t h, int64_t s, int64_t rows) {
    Delta(h, s, rows);
    std::fill_n(dq_, rows * shape_.head_dim, C(0));
    const KeyRange keys = shape_.Keys(b_, s, s + rows);
    for (int64_t key = FirstKey(keys); key < keys.end; key += kKeyBlock) {
      Tile(h, s, rows, key, std::min(kKeyBlock, keys.end - key));
    }
    StoreRows(dq_, args_.out[0], {b_, h, s, rows});
  }

  void Delta(int64_t h, int64_t s, int64_t rows) {
    C* delta = RowStatistic(args_.out[3], h, s);
    for (int64_t r = 0; r < rows; ++r) {
      const C* grad = Row(args_.in[0], h, s + r, 0);
      const C* out = Row(args_.in[4], h, s + r, 1);
      delta[r] = DotRow(grad, out, shape_.head_dim);
    }
  }

  const C* Row(const TensorArg& tensor, int64_t h, int64_t s, int slot) const {
    const int64_t offset =
        b_ * tensor.strides[0] + s * tensor.strides[1] + h * tensor.strides[2];
    return RowOperand<C>(tensor, slot).Read(offset, shape_.head_dim);
  }

  void Tile(int64_t h, int64_t s, int64_t rows, int64_t key, int64_t n) {
    const int64_t width = shape_.head_dim;
    const Matrix q = HeadRows(args_.in[1], b_, h, s);
    const Matrix k = HeadRows(args_.in[2], b_, kv_head_, key);
    const Matrix v = HeadRows(args_.in[3], b_, kv_head_, key);
    const Matrix grad = HeadRows(args_.in[0], b_, h, s);
    const Matrix p = Scratch(p_, n), dp = Scratch(dp_, n);
    MultiplyOnThisThread(
        {.a = q, .b = Transpose(k), .c = p, .m = rows, .n = n, .k = width});
    MultiplyOnThisThread(
        {.a = grad, .b = Transpose(v), .c = dp, .m = rows, .n = n, .k = width});
    for (int64_t r = 0; r < rows; ++r) SoftmaxGradient(h, s + r, r, key, n);
    C* narrow = ThreadScratch<C>(kSlotNarrow, kQueryBlock * kKeyBlock);
    MultiplyOnThisThread({.a = Transpose(TileOperand(p_, rows, n, q.dtype, narrow)), .b = grad,
                          .c = Scratch(dv_ + key * width, width), .m = n, .n = width, .k = rows,
                          .beta = 1});
    const Matrix ds = TileOperand(dp_, rows, n, q.dtype, narrow);
    MultiplyOnThisThread({.a = Transpose(ds), .b = q, .c = Scratch(dk_ + key * width, width),
                          .m = n, .n = width, .k = rows, .beta = 1});
    MultiplyOnThisThread({.a = ds, .b = k, .c = Scratch(dq_, width), .m = rows, .n = width,
                          .k = n, .beta = 1});
  }

  // Row r of the tile: scores become probabilities (after dropout), dp becomes the gradient of the
  // scores; both 0 where masked.
  void SoftmaxGradient(int64_t h, int64_t s, int64_t r, int64_t key, int64_t n) {
    C *p = p_ + r * n, *dp = dp_ + r * n;
    const C lse = *RowStatistic(args_.in[5], h, s);
    const C delta = *RowStatistic(args_.out[3], h, s);
    const KeyRange range = MaskRow(p, shape_.Keys(b_, s), key, n);
    C* part = p + range.begin;
    const C scale = static_cast<C>(shape_.attrs.scale);
    ExpRow(part, scale, lse, part, range.end - range.begin);
    if (!mask_) return ScoreGradient(p, scale, delta, dp, n);
    C* multipliers = ThreadScratch<C>(kSlotMask, kKeyBlock);
    FillDropoutMultipliers(*mask_, static_cast<uint64_t>(shape_.DropoutIndex(b_, h, s) + key),
                           multipliers, n);
    MultiplyRow(dp, multipliers, dp, n);
    ScoreGradient(p, scale, delta, dp, n);
    MultiplyRow(p, multipliers, p, n);
  }

  const OpArgs& args_;
  const AttentionShape& shape_;
  const std::optional<DropoutMask> mask_;
  const int64_t b_, kv_head_;
  C *const p_, *const dp_, *const dq_;
  C *dk_ = nullptr, *dv_ = nullptr;
};

// Few key-value heads (multi-query attention, a batch of 1) would leave threads without work: the
// query heads of each are cut into this many parts, by shape alone, which are summed afterwards.
int64_t PartsOf(const AttentionShape& shape) {
  constexpr int64_t kTasks = 8;
  const int64_t wanted = kTasks / (shape.batch * shape.kv_heads);
  return std::clamp<int64_t>(wanted, 1, shape.group());
}

template <class C>
void SplitBackward(const OpArgs& args, const AttentionShape& shape, int64_t parts) {
  const int64_t elements = shape.length * shape.head_dim;
  std::vector<C> sums(static_cast<size_t>(shape.batch * shape.kv_heads * parts * 2 * elements));
  ParallelForDynamic(shape.batch * shape.kv_heads * parts, [&](int64_t i) {
    const int64_t head = i / parts, kv_head = head % shape.kv_heads, part = i % parts;
    const int64_t first = kv_head * shape.group();
    C* dk = sums.data() + i * 2 * elements;
    QueryHeads<C>(args, shape, head / shape.kv_heads, kv_head)
        .Run(first + shape.group() * part / parts, first + shape.group() * (part + 1) / parts, dk,
             dk + elements);
  });
  ParallelForDynamic(shape.batch * shape.kv_heads, [&](int64_t head) {
    C* total = sums.data() + head * parts * 2 * elements;
    for (int64_t part = 1; part < parts; ++part) {
      AddTo(total, total + part * 2 * elements, 2 * elements);
    }
    const HeadBlock whole = {head / shape.kv_heads, head % shape.kv_heads, 0, shape.length};
    StoreRows(total, args.out[1], whole);
    StoreRows(total + elements, args.out[2], whole);
  });
}

}  // namespace

template <class C>
void TiledBackward(const OpArgs& args) {
  const AttentionShape shape = AttentionShape::Of(args, args.in[1], args.in[2]);
  const int64_t parts = PartsOf(shape);
  if (parts > 1) return SplitBackward<C>(args, shape, parts);
  ParallelForDynamic(shape.batch * shape.kv_heads, [&](int64_t i) {
    const HeadBlock whole = {i / shape.kv_heads, i % shape.kv_heads, 0, shape.length};
    C* dk = ThreadScratch<C>(kSlotDk, shape.length * shape.head_dim);
    C* dv = ThreadScratch<C>(kSlotDv, shape.length * shape.head_dim);
    const int64_t first = whole.head * shape.group();
    QueryHeads<C>(args, shape, whole.b, whole.head).Run(first, first + shape.group(), dk, dv);
    StoreRows(dk, args.out[1], whole);
    StoreRows(dv, args.out[2], whole);
  });
}

template void TiledBackward<float>(const OpArgs&);
template void TiledBackward<double>(const OpArgs&);

}  // namespace hbmtune::ops

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ops/attention_tiled/tile_kernels.h"
#include "kernels/ops/support/attention_tile.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

constexpr int kSlotScores = 12;
constexpr int kSlotOutput = 13;
constexpr int kSlotMask = 14;
constexpr int kSlotNarrow = 15;

// One block of queries of one head, against its keys tile by tile. Over the tiles seen so far,
// largest[s] is the running maximum of a row's scaled scores, sum[s] its Σ e^(score − largest),
// output[s] its Σ e^(score − largest) · v.
template <class C>
class QueryBlock {
 public:
  QueryBlock(const OpArgs& args, const AttentionShape& shape, int64_t b, int64_t h, int64_t begin)
      : args_(args), shape_(shape), mask_(AttentionDropout(args, 3)), b_(b), h_(h),
        begin_(begin), rows_(std::min(kQueryBlock, shape.length - begin)),
        scores_(ThreadScratch<C>(kSlotScores, kQueryBlock * kKeyBlock)),
        narrow_(ThreadScratch<C>(kSlotNarrow, kQueryBlock * kKeyBlock)),
        output_(ThreadScratch<C>(kSlotOutput, kQueryBlock * shape.head_dim)) {
    std::fill_n(largest_, rows_, -std::numeric_limits<C>::infinity());
    std::fill_n(sum_, rows_, C(0));
    std::fill_n(output_, rows_ * shape.head_dim, C(0));
  }

  void Run() {
    const KeyRange keys = shape_.Keys(b_, begin_, begin_ + rows_);
    for (int64_t key = FirstKey(keys); key < keys.end; key += kKeyBlock) {
      Tile(key, std::min(kKeyBlock, keys.end - key));
    }
    Finish();
  }

 private:
  void Tile(int64_t key, int64_t n) {
    const int64_t kv_head = h_ / shape_.group();
    const Dtype dtype = sizeof(C) == 8 ? Dtype::kF64 : Dtype::kF32;
    const Matrix scores = {scores_, dtype, n, 1};
    MultiplyOnThisThread({.a = HeadRows(args_.in[0], b_, h_, begin_),
                          .b = Transpose(HeadRows(args_.in[1], b_, kv_head, key)),
                          .c = scores, .m = rows_, .n = n, .k = shape_.head_dim});
    for (int64_t r = 0; r < rows_; ++r) Softmax(r, key, n);
    const Matrix p = TileOperand(scores_, rows_, n, args_.in[0].dtype, narrow_);
    MultiplyOnThisThread({.a = p, .b = HeadRows(args_.in[2], b_, kv_head, key),
                          .c = {output_, dtype, shape_.head_dim, 1}, .m = rows_,
                          .n = shape_.head_dim, .k = n, .beta = 1});
  }

  // Turns row r of the tile into e^(score − largest), 0 where masked, and rescales what came
  // before.
  void Softmax(int64_t r, int64_t key, int64_t n) {
    C* row = scores_ + r * n;
    const KeyRange range = MaskRow(row, shape_.Keys(b_, begin_ + r), key, n);
    if (range.begin == range.end) return;
    C* part = row + range.begin;
    const int64_t count = range.end - range.begin;
    const C scale = static_cast<C>(shape_.attrs.scale);
    const C largest = scale * MaxRow(part, count);
    if (largest > largest_[r]) Rescale(r, largest);
    sum_[r] += ExpRow(part, scale, largest_[r], part, count);
    if (mask_) Drop(row, shape_.DropoutIndex(b_, h_, begin_ + r) + key, n);
  }

  void Rescale(int64_t r, C largest) {
    const C correction = std::exp(largest_[r] - largest);  // 0 before the first tile
    C* output = output_ + r * shape_.head_dim;
    if (correction > 0) ScaleRow(output, correction, output, shape_.head_dim);
    sum_[r] *= correction;
    largest_[r] = largest;
  }

  void Drop(C* row, int64_t index, int64_t n) {
    C* multipliers = ThreadScratch<C>(kSlotMask, kKeyBlock);
    FillDropoutMultipliers(*mask_, static_cast<uint64_t>(index), multipliers, n);
    MultiplyRow(row, multipliers, row, n);
  }

  void Finish() {
    const TensorArg& o = args_.out[0];
    C* lse = args_.out[1].template as<C>() + (b_ * shape_.heads + h_) * shape_.length + begin_;
    const RowOperand<C> out(o, 0);
    for (int64_t r = 0; r < rows_; ++r) {
      lse[r] = largest_[r] + std::log(sum_[r]);
      const int64_t offset =
          b_ * o.strides[0] + (begin_ + r) * o.strides[1] + h_ * o.strides[2];
      C* row = out.Write(offset, shape_.head_dim);
      ScaleRow(output_ + r * shape_.head_dim, C(1) / sum_[r], row, shape_.head_dim);
      out.Commit(row, offset, shape_.head_dim);
    }
  }

  const OpArgs& args_;
  const AttentionShape& shape_;
  const std::optional<DropoutMask> mask_;
  const int64_t b_, h_, begin_, rows_;
  C* const scores_;
  C* const narrow_;
  C* const output_;
  C largest_[kQueryBlock];
  C sum_[kQueryBlock];
};

}  // namespace

template <class C>
void TiledForward(const OpArgs& args) {
  const AttentionShape shape = AttentionShape::Of(args, args.in[0], args.in[1]);
  const int64_t blocks = (shape.length + kQueryBlock - 1) / kQueryBlock;
  // The last block of queries sees most keys: it goes first.
  ParallelForDynamic(shape.batch * shape.heads * blocks, [&](int64_t i) {
    const int64_t head = i % (shape.batch * shape.heads);
    const int64_t block = blocks - 1 - i / (shape.batch * shape.heads);
    QueryBlock<C>(args, shape, head / shape.heads, head % shape.heads, block * kQueryBlock).Run();
  });
}

template void TiledForward<float>(const OpArgs&);
template void TiledForward<double>(const OpArgs&);

}  // namespace hbmtune::ops

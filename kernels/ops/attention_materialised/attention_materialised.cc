#include "kernels/ops/attention_materialised/attention_materialised.h"

#include <algorithm>

#include "kernels/ops/support/attention_tile.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

void CheckScores(const Check& check, const TensorArg& scores, const TensorArg& q) {
  const int64_t length = q.shape[1];
  check.Floating(scores).Dense(scores);
  check.Shape(scores, {q.shape[0], q.shape[2], length, length}, q);
}

void CheckForward(const OpArgs& args) {
  const Check check("attention_materialised", args,
                    {"q", "k", "v", FirstOptionalName(args), "starts?"}, {"o", "probabilities"});
  CheckHeads(check, check.in(0), check.in(1), check.in(2));
  CheckAttentionAttrs(check, args, 3);
  check.Floating(check.out(0)).SameShape(check.out(0), check.in(0)).LastStrideOne(check.out(0));
  CheckScores(check, check.out(1), check.in(0));
}

void CheckBackward(const OpArgs& args) {
  const Check check("attention_materialised_backward", args,
                    {"do", "q", "k", "v", "probabilities", FirstOptionalName(args), "starts?"},
                    {"dq", "dk", "dv", "dscores"});
  CheckHeads(check, check.in(1), check.in(2), check.in(3));
  CheckHeadGradients(check, args, 1);
  CheckAttentionAttrs(check, args, 5);
  check.Floating(check.in(0)).SameShape(check.in(0), check.in(1)).LastStrideOne(check.in(0));
  CheckScores(check, check.in(4), check.in(1));
  CheckScores(check, check.out(3), check.in(1));
}

// Nothing is skipped: the whole square of scores is computed. Softmax, and dropout, on a GPU are
// kernels of their own.
Cost FullCost(const OpArgs& args, const TensorArg& q, int products) {
  Cost cost = AttentionCost(args, q, products);
  cost.flops = 2.0 * products * static_cast<double>(q.elements() * q.shape[1]);
  cost.kernels = products + 1;
  return cost;
}
Cost CostForward(const OpArgs& args) { return FullCost(args, args.in[0], 2); }
Cost CostBackward(const OpArgs& args) { return FullCost(args, args.in[1], 4); }

constexpr int64_t kQueryBlock = 128;
constexpr int kSlotScores = 12;
constexpr int kSlotMask = 13;
constexpr int kSlotDropped = 14;
constexpr int kSlotDk = 16;
constexpr int kSlotDv = 17;

template <class C>
constexpr Dtype kDtypeOf = sizeof(C) == 8 ? Dtype::kF64 : Dtype::kF32;

// Where probability (b, h, s, t) is: rows s and t of a head as a matrix.
Matrix ScoreRows(const TensorArg& scores, int64_t head, int64_t s) {
  const int64_t length = scores.shape[3];
  return {ElementAt(scores, (head * length + s) * length), scores.dtype, length, 1};
}

// The probabilities of a block of rows as the product with v takes them: the saved ones, or those
// times the dropout's multipliers in scratch.
template <class C>
Matrix Dropped(const Matrix& saved, const std::optional<DropoutMask>& mask, int64_t first_index,
               int64_t rows, int64_t length) {
  const int64_t row_step = (length + 3) / 4 * 4;
  if (!mask) return saved;
  C* dropped = ThreadScratch<C>(kSlotDropped, rows * length);
  C* multipliers = ThreadScratch<C>(kSlotMask, length);
  for (int64_t r = 0; r < rows; ++r) {
    C* row = dropped + r * length;
    ReadElements(static_cast<char*>(saved.data) + r * length * SizeOf(saved.dtype), saved.dtype,
                 row, length);
    FillDropoutMultipliers(*mask, static_cast<uint64_t>(first_index + r * row_step), multipliers,
                           length);
    MultiplyRow(row, multipliers, row, length);
  }
  return {dropped, kDtypeOf<C>, length, 1};
}

// Row s of the scores of sequence b becomes probabilities; 0 where masked.
template <class C>
void SoftmaxRow(const AttentionShape& shape, int64_t b, int64_t s, C* row) {
  const KeyRange range = MaskRow(row, shape.Keys(b, s), 0, shape.length);
  const int64_t n = range.end - range.begin;
  const C scale = static_cast<C>(shape.attrs.scale);
  C* part = row + range.begin;
  const C sum = ExpRow(part, scale, scale * MaxRow(part, n), part, n);
  ScaleRow(part, C(1) / sum, part, n);
}

template <class C>
void ForwardBlock(const OpArgs& args, const AttentionShape& shape, int64_t head, int64_t s) {
  const int64_t b = head / shape.heads, h = head % shape.heads, kv_head = h / shape.group();
  const int64_t length = shape.length, rows = std::min(kQueryBlock, length - s);
  C* scores = ThreadScratch<C>(kSlotScores, rows * length);
  MultiplyOnThisThread({.a = HeadRows(args.in[0], b, h, s),
                        .b = Transpose(HeadRows(args.in[1], b, kv_head, 0)),
                        .c = {scores, kDtypeOf<C>, length, 1}, .m = rows, .n = length,
                        .k = shape.head_dim});
  const TensorArg& probabilities = args.out[1];
  for (int64_t r = 0; r < rows; ++r) {
    SoftmaxRow(shape, b, s + r, scores + r * length);
    WriteElements(scores + r * length, ElementAt(probabilities, shape.ScoreIndex(b, h, s + r)),
                  probabilities.dtype, length);
  }
  const Matrix p = Dropped<C>(ScoreRows(probabilities, head, s), AttentionDropout(args, 3),
                              shape.DropoutIndex(b, h, s), rows, length);
  MultiplyOnThisThread({.a = p, .b = HeadRows(args.in[2], b, kv_head, 0),
                        .c = HeadRows(args.out[0], b, h, s), .m = rows, .n = shape.head_dim,
                        .k = length});
}

template <class C>
void Forward(const OpArgs& args) {
  const AttentionShape shape = AttentionShape::Of(args, args.in[0], args.in[1]);
  const int64_t heads = shape.batch * shape.heads;
  const int64_t blocks = (shape.length + kQueryBlock - 1) / kQueryBlock;
  ParallelForDynamic(heads * blocks, [&](int64_t i) {
    ForwardBlock<C>(args, shape, i / blocks, i % blocks * kQueryBlock);
  });
}

// One key-value head of one sequence, its query heads and their blocks ascending: the sums of dk
// and dv have one order.
template <class C>
class BackwardHead {
 public:
  BackwardHead(const OpArgs& args, const AttentionShape& shape, int64_t b, int64_t kv_head)
      : args_(args), shape_(shape), mask_(AttentionDropout(args, 5)), b_(b), kv_head_(kv_head) {
    const int64_t elements = shape.length * shape.head_dim;
    dk_ = ThreadScratch<C>(kSlotDk, elements);
    dv_ = ThreadScratch<C>(kSlotDv, elements);
    std::fill_n(dk_, elements, C(0));
    std::fill_n(dv_, elements, C(0));
  }

  void Run() {
    for (int64_t h = kv_head_ * shape_.group(); h < (kv_head_ + 1) * shape_.group(); ++h) {
      for (int64_t s = 0; s < shape_.length; s += kQueryBlock) Block(h, s);
    }
    for (int64_t s = 0; s < shape_.length; ++s) {
      const int64_t at = s * shape_.head_dim;
      WriteElements(dk_ + at, HeadRows(args_.out[1], b_, kv_head_, s).data, args_.out[1].dtype,
                    shape_.head_dim);
      WriteElements(dv_ + at, HeadRows(args_.out[2], b_, kv_head_, s).data, args_.out[2].dtype,
                    shape_.head_dim);
    }
  }

 private:
  void Block(int64_t h, int64_t s) {
    const int64_t length = shape_.length, width = shape_.head_dim;
    const int64_t rows = std::min(kQueryBlock, length - s), head = b_ * shape_.heads + h;
    const Matrix grad = HeadRows(args_.in[0], b_, h, s);
    const Matrix p = Dropped<C>(ScoreRows(args_.in[4], head, s), mask_,
                                shape_.DropoutIndex(b_, h, s), rows, length);
    MultiplyOnThisThread({.a = Transpose(p), .b = grad, .c = {dv_, kDtypeOf<C>, width, 1},
                          .m = length, .n = width, .k = rows, .beta = 1});
    C* dp = ThreadScratch<C>(kSlotScores, rows * length);
    MultiplyOnThisThread({.a = grad, .b = Transpose(HeadRows(args_.in[3], b_, kv_head_, 0)),
                          .c = {dp, kDtypeOf<C>, length, 1}, .m = rows, .n = length,
                          .k = width});
    for (int64_t r = 0; r < rows; ++r) ScoreGradient(h, s + r, dp + r * length);
    const Matrix ds = ScoreRows(args_.out[3], head, s);
    MultiplyOnThisThread({.a = ds, .b = HeadRows(args_.in[2], b_, kv_head_, 0),
                          .c = HeadRows(args_.out[0], b_, h, s), .m = rows, .n = width,
                          .k = length});
    MultiplyOnThisThread({.a = Transpose(ds), .b = HeadRows(args_.in[1], b_, h, s),
                          .c = {dk_, kDtypeOf<C>, width, 1}, .m = length, .n = width, .k = rows,
                          .beta = 1});
  }

  // The gradient of q·kᵀ, scale · p · (dp − Σ p·dp), written to dscores in its dtype.
  void ScoreGradient(int64_t h, int64_t s, C* dp) {
    const int64_t length = shape_.length, index = shape_.ScoreIndex(b_, h, s);
    if (mask_) {
      C* multipliers = ThreadScratch<C>(kSlotMask, length);
      FillDropoutMultipliers(*mask_, static_cast<uint64_t>(shape_.DropoutIndex(b_, h, s)),
                             multipliers, length);
      MultiplyRow(dp, multipliers, dp, length);
    }
    const C* p = RowOperand<C>(args_.in[4], 0).Read(index, length);
    AddConstant(dp, -DotRow(p, dp, length), length);
    MultiplyRow(dp, p, dp, length);
    ScaleRow(dp, static_cast<C>(shape_.attrs.scale), dp, length);
    WriteElements(dp, ElementAt(args_.out[3], index), args_.out[3].dtype, length);
  }

  const OpArgs& args_;
  const AttentionShape& shape_;
  const std::optional<DropoutMask> mask_;
  const int64_t b_, kv_head_;
  C *dk_, *dv_;
};

template <class C>
void Backward(const OpArgs& args) {
  const AttentionShape shape = AttentionShape::Of(args, args.in[1], args.in[2]);
  ParallelForDynamic(shape.batch * shape.kv_heads, [&](int64_t i) {
    BackwardHead<C>(args, shape, i / shape.kv_heads, i % shape.kv_heads).Run();
  });
}

void HostForward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Forward<decltype(c)>(args); });
}
void HostBackward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Backward<decltype(c)>(args); });
}

}  // namespace

const OpKind kAttentionMaterialised = {"attention_materialised", CheckForward, CostForward,
                                       HostForward};
const OpKind kAttentionMaterialisedBackward = {"attention_materialised_backward", CheckBackward,
                                               CostBackward, HostBackward};

}  // namespace hbmtune::ops

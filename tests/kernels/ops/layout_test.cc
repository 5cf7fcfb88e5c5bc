// Views, in-place use, bad arguments and numbers that are not finite.

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "kernels/ops/add/add.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/ops/finite/finite.h"
#include "kernels/ops/labels/labels.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/rotary/rotary.h"
#include "kernels/ops/silu_gate/silu_gate.h"
#include "tests/kernels/ops/harness.h"

namespace hbmtune::ops {
namespace {

using ::testing::HasSubstr;
using testing::Close;
using testing::Complaint;
using testing::HostTensor;
using testing::RunOp;

TEST(Copy, TransposesAndConverts) {
  const auto x = HostTensor::Random(Dtype::kF32, {2, 3, 4, 5}, 1);
  HostTensor y(Dtype::kBf16, {2, 4, 3, 5});
  RunOp(kCopy, {x.View({2, 4, 3, 5}, {60, 5, 20, 1})}, {y.arg()});
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t s = 0; s < 3; ++s) {
      for (int64_t i = 0; i < 20; ++i) {
        const double from = x.At(b * 60 + s * 20 + i);
        const double to = y.At(b * 60 + i / 5 * 15 + s * 5 + i % 5);
        EXPECT_NEAR(to, from, std::fabs(from) * 0x1p-8);
      }
    }
  }
}

TEST(Copy, BroadcastsAndKeepsIntegers) {
  const auto x = HostTensor::Ints({3}, {1, 2, 1LL << 60});
  HostTensor y(Dtype::kI64, {2, 3});
  RunOp(kCopy, {x.View({2, 3}, {0, 1})}, {y.arg()});
  EXPECT_EQ(y.At(0), 1);
  EXPECT_EQ(y.arg().as<int64_t>()[5], 1LL << 60);
}

TEST(Copy, KeepsFp64BitsExactly) {
  const auto x = HostTensor::Random(Dtype::kF64, {100}, 3);
  HostTensor y(Dtype::kF64, {100});
  RunOp(kCopy, {x.arg()}, {y.arg()});
  EXPECT_TRUE(y.BitwiseEqual(x));
}

TEST(Fill, WritesOnlyItsView) {
  auto y = HostTensor::Zeros(Dtype::kF16, {4, 4});
  RunOp(kFill, {}, {y.View({4, 2}, {4, 2}, 1)}, Attrs::Of(FillAttrs{1.5}));
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(y.At(i), i % 2 == 1 ? 1.5 : 0) << i;
  auto integers = HostTensor::Ints({3}, {1, 2, 3});
  RunOp(kFill, {}, {integers.arg()}, Attrs::Of(FillAttrs{-7}));
  EXPECT_EQ(integers.arg().as<int64_t>()[2], -7);
}

TEST(Linear, TakesColumnsOfAWiderBufferAndAccumulates) {
  const auto wide = HostTensor::Random(Dtype::kF32, {6, 10}, 1);
  const auto weight = HostTensor::Random(Dtype::kF32, {3, 4}, 2);
  auto out = HostTensor::Random(Dtype::kF32, {6, 8}, 3);
  const auto before = out.Values();
  RunOp(kLinear, {wide.View({2, 3, 4}, {30, 10, 1}, 5), weight.arg()},
        {out.View({2, 3, 3}, {24, 8, 1}, 2)},
        Attrs::Of(LinearAttrs{.alpha = 2, .accumulate = 1}));
  for (int64_t n = 0; n < 6; ++n) {
    for (int64_t j = 0; j < 8; ++j) {
      double expected = before[static_cast<size_t>(n * 8 + j)];
      for (int64_t i = 0; i < 4 && j >= 2 && j < 5; ++i) {
        expected += 2 * wide.At(n * 10 + 5 + i) * weight.At((j - 2) * 4 + i);
      }
      EXPECT_NEAR(out.At(n * 8 + j), expected, 1e-5);
    }
  }
}

TEST(Linear, MixesFp32With16BitAndWritesGradientsInFp32) {
  const auto dy = HostTensor::Random(Dtype::kBf16, {40, 6}, 1);
  const auto x = HostTensor::Random(Dtype::kBf16, {40, 5}, 2);
  HostTensor dweight(Dtype::kF32, {6, 5}), expected(Dtype::kF64, {6, 5});
  const Attrs attrs = Attrs::Of(LinearAttrs{});
  RunOp(kLinearBackwardWeight, {dy.arg(), x.arg()}, {dweight.arg()}, attrs);
  const auto dy64 = dy.As(Dtype::kF64), x64 = x.As(Dtype::kF64);
  RunOp(kLinearBackwardWeight, {dy64.arg(), x64.arg()}, {expected.arg()}, attrs);
  EXPECT_TRUE(Close(dweight.Values(), expected.Values(), 8 * 0x1p-24));
}

TEST(Attention, TakesAndGivesViewsOfOneBuffer) {
  const int64_t s = 9, heads = 4, kv = 2, d = 6, row = (heads + 2 * kv) * d;
  const auto qkv = HostTensor::Random(Dtype::kF32, {2, s, row}, 1);
  const auto grad = HostTensor::Random(Dtype::kF32, {2, s, heads, d}, 2);
  const auto views = [&](const HostTensor& buffer) {
    return std::vector<TensorArg>{
        buffer.View({2, s, heads, d}, {s * row, row, d, 1}),
        buffer.View({2, s, kv, d}, {s * row, row, d, 1}, heads * d),
        buffer.View({2, s, kv, d}, {s * row, row, d, 1}, (heads + kv) * d)};
  };
  const Attrs attrs = Attrs::Of(AttentionAttrs{.scale = 0.4});
  const auto run = [&](const std::vector<TensorArg>& in, const std::vector<TensorArg>& out) {
    HostTensor o(Dtype::kF32, {2, s, heads, d}), lse(Dtype::kF32, {2, heads, s});
    HostTensor delta(Dtype::kF32, {2, heads, s});
    RunOp(kAttentionTiled, in, {o.arg(), lse.arg()}, attrs);
    RunOp(kAttentionTiledBackward, {grad.arg(), in[0], in[1], in[2], o.arg(), lse.arg()},
          {out[0], out[1], out[2], delta.arg()}, attrs);
    return o;
  };
  HostTensor d_qkv(Dtype::kF32, {2, s, row});
  const HostTensor o = run(views(qkv), views(d_qkv));
  HostTensor q(Dtype::kF32, {2, s, heads, d}), k(Dtype::kF32, {2, s, kv, d}), v = k;
  HostTensor dq = q, dk = k, dv = v;
  RunOp(kCopy, {views(qkv)[0]}, {q.arg()});
  RunOp(kCopy, {views(qkv)[1]}, {k.arg()});
  RunOp(kCopy, {views(qkv)[2]}, {v.arg()});
  const HostTensor dense = run({q.arg(), k.arg(), v.arg()}, {dq.arg(), dk.arg(), dv.arg()});
  EXPECT_TRUE(o.BitwiseEqual(dense));
  HostTensor gathered = k;
  RunOp(kCopy, {views(d_qkv)[1]}, {gathered.arg()});
  EXPECT_TRUE(gathered.BitwiseEqual(dk));
}

TEST(InPlace, GivesTheSameBits) {
  const auto gate = HostTensor::Random(Dtype::kBf16, {5, 33}, 1);
  const auto up = HostTensor::Random(Dtype::kBf16, {5, 33}, 2);
  const auto dy = HostTensor::Random(Dtype::kBf16, {5, 33}, 3);
  HostTensor dgate(Dtype::kBf16, {5, 33}), dup = dgate, y = dgate;
  RunOp(kSiluGateBackward, {dy.arg(), gate.arg(), up.arg()}, {dgate.arg(), dup.arg(), y.arg()});
  HostTensor gate2 = gate, up2 = up, dy2 = dy;
  RunOp(kSiluGateBackward, {dy2.arg(), gate2.arg(), up2.arg()},
        {gate2.arg(), up2.arg(), dy2.arg()});
  EXPECT_TRUE(gate2.BitwiseEqual(dgate));
  EXPECT_TRUE(up2.BitwiseEqual(dup));
  EXPECT_TRUE(dy2.BitwiseEqual(y));

  const auto x = HostTensor::Random(Dtype::kF32, {2, 5, 3, 8}, 4);
  HostTensor cos(Dtype::kF32, {5, 4}), sin = cos, turned = x, expected(Dtype::kF32, x.shape());
  RunOp(kRotaryTable, {}, {cos.arg(), sin.arg()}, Attrs::Of(RotaryTableAttrs{}));
  RunOp(kRotary, {x.arg(), cos.arg(), sin.arg()}, {expected.arg()});
  RunOp(kRotary, {turned.arg(), cos.arg(), sin.arg()}, {turned.arg()});
  EXPECT_TRUE(turned.BitwiseEqual(expected));
}

TEST(CrossEntropy, ByChunksAndInPlaceGivesTheSameBits) {
  const auto logits = HostTensor::Random(Dtype::kF32, {10, 21}, 1, 3);
  const auto targets = HostTensor::Ints({10}, {1, 2, -100, 20, 0, 5, -100, 7, 8, 9});
  const auto count = HostTensor::Of(Dtype::kF32, {1}, {8});
  HostTensor losses(Dtype::kF32, {10}), dlogits(Dtype::kF32, {10, 21});
  const Attrs attrs = Attrs::Of(CrossEntropyAttrs{});
  RunOp(kCrossEntropy, {logits.arg(), targets.arg(), count.arg()}, {losses.arg(), dlogits.arg()},
        attrs);
  HostTensor chunked = logits, chunk_losses(Dtype::kF32, {10});
  for (int64_t begin = 0; begin < 10; begin += 4) {
    const int64_t n = std::min<int64_t>(4, 10 - begin);
    const TensorArg rows = chunked.View({n, 21}, {21, 1}, begin * 21);
    RunOp(kCrossEntropy, {rows, targets.View({n}, {1}, begin), count.arg()},
          {chunk_losses.View({n}, {1}, begin), rows}, attrs);
  }
  EXPECT_TRUE(chunked.BitwiseEqual(dlogits));
  EXPECT_TRUE(chunk_losses.BitwiseEqual(losses));
  HostTensor evaluated(Dtype::kF32, {10});
  RunOp(kCrossEntropy, {logits.arg(), targets.arg(), count.arg()}, {evaluated.arg()}, attrs);
  EXPECT_TRUE(evaluated.BitwiseEqual(losses));
}

TEST(CrossEntropy, SurvivesHugeLogitsAndNoTargets) {
  const auto logits = HostTensor::Of(Dtype::kF32, {2, 3}, {1e30, -1e30, 0, 88, 89, 90});
  const auto targets = HostTensor::Ints({2}, {0, 2});
  HostTensor losses(Dtype::kF32, {2}), loss(Dtype::kF32, {1});
  const auto none = HostTensor::Of(Dtype::kF32, {1}, {0});
  RunOp(kCrossEntropy, {logits.arg(), targets.arg(), none.arg()}, {losses.arg()},
        Attrs::Of(CrossEntropyAttrs{}));
  EXPECT_EQ(losses.At(0), 0);
  EXPECT_NEAR(losses.At(1), std::log(1 + std::exp(-1.0) + std::exp(-2.0)), 1e-6);
  RunOp(kCrossEntropyMean, {losses.arg(), none.arg()}, {loss.arg()},
        Attrs::Of(CrossEntropyMeanAttrs{}));
  EXPECT_EQ(loss.At(0), 0);
}

TEST(Labels, PredictTheNextTokenWithinEachSequence) {
  const auto labels = HostTensor::Ints({2, 4}, {1, 2, 3, 4, 5, -100, 7, 8});
  HostTensor targets(Dtype::kI64, {2, 4}), count(Dtype::kF32, {1});
  RunOp(kLabels, {labels.arg()}, {targets.arg(), count.arg()}, Attrs::Of(LabelsAttrs{}));
  const std::vector<double> expected = {2, 3, 4, -100, -100, 7, 8, -100};
  EXPECT_EQ(targets.Values(), expected);
  EXPECT_EQ(count.At(0), 5);
}

class FiniteCheck : public ::testing::TestWithParam<Dtype> {};

TEST_P(FiniteCheck, SeesEveryInfinityAndNan) {
  const double inf = std::numeric_limits<double>::infinity();
  const double largest = GetParam() == Dtype::kF16 ? 65504 : 3e38;
  for (const double bad : {inf, -inf, std::nan("")}) {
    for (const int64_t at : {0, 4095, 4096, 9999}) {
      auto x = HostTensor::Zeros(GetParam(), {10000});
      x.Set(7, largest);
      auto flag = HostTensor::Zeros(Dtype::kF32, {1});
      RunOp(kFinite, {x.arg()}, {flag.arg()});
      EXPECT_EQ(flag.At(0), 0);
      x.Set(at, bad);
      RunOp(kFinite, {x.arg()}, {flag.arg()});
      EXPECT_EQ(flag.At(0), 1) << bad << " at " << at;
      x.Set(at, 0);
      RunOp(kFinite, {x.arg()}, {flag.arg()});
      EXPECT_EQ(flag.At(0), 1) << "the flag is kept";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FiniteCheck,
                         ::testing::Values(Dtype::kF32, Dtype::kBf16, Dtype::kF16));

TEST(Complaints, NameTheTensorAndBothShapes) {
  const HostTensor x(Dtype::kF32, {4, 8}), weight(Dtype::kF32, {3, 9}), y(Dtype::kF32, {4, 3});
  EXPECT_EQ(Complaint(kLinear, {x.arg(), weight.arg()}, {y.arg()}),
            "linear: weight is fp32 [3, 9]: expected [3, 8] to fit x [4, 8] and y [4, 3]");
  EXPECT_EQ(Complaint(kAdd, {x.arg(), y.arg()}, {x.arg()}),
            "add: b is fp32 [4, 3]: expected the shape of a [4, 8]");
  EXPECT_EQ(Complaint(kAdd, {x.arg()}, {x.arg()}), "add: 1 inputs given, expected (a, b)");
  EXPECT_THAT(Complaint(kCopy, {x.arg()}, {y.arg()}), HasSubstr("y is fp32 [4, 3]"));
  const auto integers = HostTensor::Ints({4, 8}, std::vector<int64_t>(32, 0));
  EXPECT_THAT(Complaint(kAdd, {x.arg(), integers.arg()}, {x.arg()}),
              HasSubstr("b is int64 [4, 8]: expected fp32, bf16, fp16 or fp64"));
  EXPECT_THAT(Complaint(kAdd, {x.View({8, 4}, {1, 8}), x.View({8, 4}, {1, 8})},
                        {x.View({8, 4}, {1, 8})}),
              HasSubstr("has strides [1, 8], expected dense [4, 1]"));
}

TEST(Complaints, KnowHeads) {
  const HostTensor q(Dtype::kF32, {1, 5, 6, 8}), k(Dtype::kF32, {1, 5, 4, 8});
  const HostTensor lse(Dtype::kF32, {1, 6, 5}), odd(Dtype::kF32, {1, 5, 6, 7});
  EXPECT_EQ(Complaint(kAttentionTiled, {q.arg(), k.arg(), k.arg()}, {q.arg(), lse.arg()},
                      Attrs::Of(AttentionAttrs{})),
            "attention_tiled: the heads of q [1, 5, 6, 8] are not a multiple of those of k "
            "[1, 5, 4, 8]");
  EXPECT_THAT(Complaint(kAttentionTiled, {q.arg(), q.arg(), q.arg()}, {q.arg(), lse.arg()},
                        Attrs::Of(AttentionAttrs{.dropout = 0.1})),
              HasSubstr("dropout needs the key"));
  const HostTensor table(Dtype::kF32, {5, 3});
  EXPECT_THAT(Complaint(kRotary, {odd.arg(), table.arg(), table.arg()}, {odd.arg()}),
              HasSubstr("head_dim of x [1, 5, 6, 7] is odd"));
  const HostTensor narrow(Dtype::kF32, {4, 4});
  EXPECT_THAT(Complaint(kRotary, {q.arg(), narrow.arg(), narrow.arg()}, {q.arg()}),
              HasSubstr("cos [4, 4] has no row of head_dim/2 for each position of x [1, 5, 6, 8]"));
}

TEST(Complaints, NameTheTokenThatIsOutside) {
  const auto ids = HostTensor::Ints({3}, {1, 9, 2});
  const auto weight = HostTensor::Zeros(Dtype::kF32, {9, 2});
  HostTensor y(Dtype::kF32, {3, 2});
  try {
    RunOp(kEmbedding, {ids.arg(), weight.arg()}, {y.arg()});
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "embedding: token id 9 at index 1 is outside the vocabulary of 9");
  }
}

}  // namespace
}  // namespace hbmtune::ops

// PyTorch's own operators: values against plain formulas, backward ones against central differences
// of the forward ones, views and rounding as torch has them.

#include <cmath>

#include "kernels/ops/aten_bmm/aten_bmm.h"
#include "kernels/ops/aten_dropout/aten_dropout.h"
#include "kernels/ops/aten_nll_loss/aten_nll_loss.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/aten_range/aten_range.h"
#include "kernels/ops/aten_reduce/aten_reduce.h"
#include "kernels/ops/aten_softmax/aten_softmax.h"
#include "tests/kernels/ops/harness.h"

namespace hbmtune::ops {
namespace {

using testing::Close;
using testing::Complaint;
using testing::Dot;
using testing::HostTensor;
using testing::RunOp;

constexpr double kExact = 1e-15;
constexpr double kSlope = 1e-8;  // of central differences, see gradient_test.cc

HostTensor Random(Dims shape, uint64_t seed) {
  return HostTensor::Random(Dtype::kF64, shape, seed);
}
HostTensor Empty(Dims shape) { return {Dtype::kF64, shape}; }

struct Unary {
  const OpKind* op;
  double (*value)(double);
  double scalar = 0;
};

TEST(AtenPointwise, UnaryOpsAreTheirFormulas) {
  const Unary cases[] = {
      {&kAtenAddScalar, [](double a) { return a + 3; }, 3},
      {&kAtenMulScalar, [](double a) { return a * -2.5; }, -2.5},
      {&kAtenNeg, [](double a) { return -a; }},
      {&kAtenPow, [](double a) { return a * a; }, 2},
      {&kAtenReciprocal, [](double a) { return 1 / a; }},
      {&kAtenCos, [](double a) { return std::cos(a); }},
      {&kAtenSin, [](double a) { return std::sin(a); }},
      {&kAtenTanh, [](double a) { return std::tanh(a); }},
      {&kAtenSilu, [](double a) { return a / (1 + std::exp(-a)); }},
      {&kAtenGelu, [](double a) { return 0.5 * a * (1 + std::erf(a / std::sqrt(2.0))); }},
      {&kAtenClampMax, [](double a) { return a < 0.25 ? a : 0.25; }, 0.25},
  };
  const auto x = Random({4, 9}, 1);
  for (const Unary& c : cases) {
    auto y = Empty({4, 9});
    RunOp(*c.op, {x.arg()}, {y.arg()}, Attrs::Of(AtenPointwiseAttrs{c.scalar}));
    std::vector<double> expected;
    for (double a : x.Values()) expected.push_back(c.value(a));
    EXPECT_TRUE(Close(y.Values(), expected, kExact)) << c.op->name;
  }
  auto squares = HostTensor::Of(Dtype::kF64, {3}, {1, 4, 0.25}), roots = Empty({3});
  RunOp(kAtenRsqrt, {squares.arg()}, {roots.arg()}, Attrs::Of(AtenPointwiseAttrs{}));
  EXPECT_TRUE(Close(roots.Values(), {1, 0.5, 2}, kExact));
}

TEST(AtenPointwise, BackwardOpsAreTheSlopes) {
  struct Pair {
    const OpKind* forward;
    const OpKind* backward;
    bool of_result;  // tanh's takes its result, the others their input
  };
  const Pair pairs[] = {{&kAtenTanh, &kAtenTanhBackward, true},
                        {&kAtenSilu, &kAtenSiluBackward, false},
                        {&kAtenGelu, &kAtenGeluBackward, false}};
  for (const Pair& pair : pairs) {
    auto x = Random({3, 5}, 1), w = Random({3, 5}, 2), y = Empty({3, 5}), dx = Empty({3, 5});
    const Attrs none = Attrs::Of(AtenPointwiseAttrs{});
    const auto loss = [&] {
      RunOp(*pair.forward, {x.arg()}, {y.arg()}, none);
      return Dot(y, w);
    };
    loss();
    RunOp(*pair.backward, {w.arg(), pair.of_result ? y.arg() : x.arg()}, {dx.arg()}, none);
    EXPECT_TRUE(Close(dx.Values(), testing::FiniteDifference(loss, x), kSlope))
        << pair.backward->name;
  }
}

TEST(AtenPointwise, BroadcastsReadsViewsAndRoundsOnce) {
  const auto a = HostTensor::Of(Dtype::kF64, {2, 3}, {1, 2, 3, 4, 5, 6});
  const auto row = HostTensor::Of(Dtype::kF64, {3}, {10, 20, 30});
  auto y = Empty({2, 3});
  const Attrs none = Attrs::Of(AtenPointwiseAttrs{});
  RunOp(kAtenAdd, {a.arg(), row.arg()}, {y.arg()}, none);
  EXPECT_EQ(y.Values(), (std::vector<double>{11, 22, 33, 14, 25, 36}));
  auto turned = Empty({3, 2});
  RunOp(kAtenMul, {a.View({3, 2}, {1, 3}), a.View({3, 2}, {1, 3})}, {turned.arg()}, none);
  EXPECT_EQ(turned.Values(), (std::vector<double>{1, 16, 4, 25, 9, 36}));
  // 1 + 2⁻⁸ is no bf16 number: ties go to the even neighbour, once.
  auto half = HostTensor(Dtype::kBf16, {1});
  const auto one = HostTensor::Of(Dtype::kBf16, {1}, {1});
  RunOp(kAtenAddScalar, {one.arg()}, {half.arg()}, Attrs::Of(AtenPointwiseAttrs{0.00390625}));
  EXPECT_EQ(half.At(0), 1);
  EXPECT_NE(Complaint(kAtenAdd, {a.arg(), turned.arg()}, {y.arg()}, none), "");
}

TEST(AtenReduce, SumsAndNormsOverExtentsOfOne) {
  const auto x = HostTensor::Of(Dtype::kF64, {2, 3}, {1, 2, 3, 4, 5, 6});
  auto rows = Empty({2, 1}), columns = Empty({3}), all = Empty({});
  RunOp(kAtenSum, {x.arg()}, {rows.arg()}, Attrs::Of(AtenSumAttrs{1.0 / 3}));
  EXPECT_TRUE(Close(rows.Values(), {2, 5}, kExact));
  RunOp(kAtenSum, {x.arg()}, {columns.arg()}, Attrs::Of(AtenSumAttrs{}));
  EXPECT_EQ(columns.Values(), (std::vector<double>{5, 7, 9}));
  RunOp(kAtenSum, {x.View({3, 2}, {1, 3})}, {all.arg()}, Attrs::Of(AtenSumAttrs{}));
  EXPECT_EQ(all.At(0), 21);
  auto norm = Empty({1, 1});
  RunOp(kAtenNorm, {x.arg()}, {norm.arg()});
  EXPECT_NEAR(norm.At(0), std::sqrt(91.0), 1e-12);
  EXPECT_NE(Complaint(kAtenSum, {x.arg()}, {Empty({2, 2}).arg()}), "");
}

TEST(AtenSoftmax, ValuesAndSlopes) {
  auto x = Random({3, 6}, 1), w = Random({3, 6}, 2), y = Empty({3, 6}), dx = Empty({3, 6});
  auto log = Empty({3, 6});
  RunOp(kAtenSoftmax, {x.arg()}, {y.arg()});
  RunOp(kAtenLogSoftmax, {x.arg()}, {log.arg()});
  for (int row = 0; row < 3; ++row) {
    double sum = 0, weights = 0;
    for (int i = 0; i < 6; ++i) sum += y.At(row * 6 + i);
    for (int i = 0; i < 6; ++i) weights += std::exp(x.At(row * 6 + i));
    EXPECT_NEAR(sum, 1, 1e-14);
    EXPECT_NEAR(y.At(row * 6 + 2), std::exp(x.At(row * 6 + 2)) / weights, 1e-14);
  }
  for (int i = 0; i < 18; ++i) EXPECT_NEAR(log.At(i), std::log(y.At(i)), 1e-13);
  const auto check = [&](const OpKind& forward, const OpKind& backward) {
    const auto loss = [&] {
      RunOp(forward, {x.arg()}, {y.arg()});
      return Dot(y, w);
    };
    loss();
    RunOp(backward, {w.arg(), y.arg()}, {dx.arg()});
    EXPECT_TRUE(Close(dx.Values(), testing::FiniteDifference(loss, x), kSlope)) << backward.name;
  };
  check(kAtenSoftmax, kAtenSoftmaxBackward);
  check(kAtenLogSoftmax, kAtenLogSoftmaxBackward);
}

TEST(AtenNllLoss, IsTheMeanOverTargetsThatCount) {
  auto p = Random({4, 5}, 1), loss = Empty({}), weight = Empty({}), dp = Empty({4, 5});
  const auto targets = HostTensor::Ints({4}, {2, -100, 0, 4});
  const Attrs attrs = Attrs::Of(AtenNllLossAttrs{});
  const auto value = [&] {
    RunOp(kAtenNllLoss, {p.arg(), targets.arg()}, {loss.arg(), weight.arg()}, attrs);
    return loss.At(0);
  };
  EXPECT_NEAR(value(), -(p.At(2) + p.At(10) + p.At(19)) / 3, 1e-14);
  EXPECT_EQ(weight.At(0), 3);
  const auto one = HostTensor::Of(Dtype::kF64, {}, {1});
  RunOp(kAtenNllLossBackward, {one.arg(), targets.arg(), weight.arg()}, {dp.arg()}, attrs);
  EXPECT_TRUE(Close(dp.Values(), testing::FiniteDifference(value, p), kSlope));
}

TEST(AtenDropout, KeepsTheExpectedShareAndItsBackwardTheSameElements) {
  const int64_t n = 20000;
  auto x = HostTensor::Of(Dtype::kF64, {n}, std::vector<double>(n, 1.0));
  auto y = Empty({n}), again = Empty({n}), dx = Empty({n});
  HostTensor mask(Dtype::kU8, {n});
  const Attrs attrs = Attrs::Of(AtenDropoutAttrs{0.25, 7});
  RunOp(kAtenDropout, {x.arg()}, {y.arg(), mask.arg()}, attrs);
  double kept = 0;
  for (double value : y.Values()) {
    EXPECT_TRUE(value == 0 || std::abs(value - 1 / 0.75) < 1e-15);
    kept += value != 0;
  }
  EXPECT_NEAR(kept / n, 0.75, 0.015);  // five standard deviations
  RunOp(kAtenDropoutBackward, {x.arg(), mask.arg()}, {dx.arg()}, attrs);
  EXPECT_EQ(dx.Values(), y.Values());
  RunOp(kAtenDropout, {x.arg()}, {again.arg(), mask.arg()}, attrs);
  EXPECT_TRUE(again.BitwiseEqual(y));
  RunOp(kAtenDropout, {x.arg()}, {again.arg(), mask.arg()}, Attrs::Of(AtenDropoutAttrs{0.25, 8}));
  EXPECT_FALSE(again.BitwiseEqual(y));
}

TEST(AtenBmm, MultipliesViewsAndAddsABias) {
  const auto a = Random({2, 3, 4}, 1), b = Random({2, 5, 4}, 2), bias = Random({5}, 3);
  auto y = Empty({2, 3, 5});
  RunOp(kAtenBmm, {a.arg(), b.View({2, 4, 5}, {20, 1, 4}), bias.arg()}, {y.arg()},
        Attrs::Of(AtenBmmAttrs{2}));
  std::vector<double> expected;
  for (int n = 0; n < 2; ++n) {
    for (int row = 0; row < 3; ++row) {
      for (int column = 0; column < 5; ++column) {
        double sum = 0;
        for (int k = 0; k < 4; ++k) {
          sum += a.At(n * 12 + row * 4 + k) * b.At(n * 20 + column * 4 + k);
        }
        expected.push_back(2 * sum + bias.At(column));
      }
    }
  }
  EXPECT_TRUE(Close(y.Values(), expected, 1e-14));
  EXPECT_NE(Complaint(kAtenBmm, {a.arg(), b.arg()}, {y.arg()}, Attrs::Of(AtenBmmAttrs{})), "");
}

TEST(AtenRange, CountsTurnsAndMasks) {
  HostTensor count(Dtype::kI64, {4});
  RunOp(kAtenArange, {}, {count.arg()}, Attrs::Of(AtenRangeAttrs{}));
  EXPECT_EQ(count.Values(), (std::vector<double>{0, 1, 2, 3}));
  auto turns = Empty({4});
  RunOp(kAtenInverseFrequencies, {}, {turns.arg()}, Attrs::Of(AtenRangeAttrs{10000}));
  EXPECT_TRUE(Close(turns.Values(), {1, 0.1, 0.01, 0.001}, 1e-14));
  auto mask = Empty({1, 2, 3, 3});
  RunOp(kAtenCausalMask, {}, {mask.arg()}, Attrs::Of(AtenRangeAttrs{}));
  for (int i = 0; i < 18; ++i) {
    const int row = i / 3 % 3, column = i % 3;
    if (column <= row) {
      EXPECT_EQ(mask.At(i), 0);
    } else {
      EXPECT_LE(mask.At(i), -1e30);
    }
  }
}

}  // namespace
}  // namespace hbmtune::ops

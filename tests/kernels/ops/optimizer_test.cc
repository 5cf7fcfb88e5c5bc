// Optimizers, the control that they read, the loss scale, and dropout's replay.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/adamw_8bit/adamw_8bit.h"
#include "kernels/ops/adamw_8bit/dynamic_code.h"
#include "kernels/ops/dropout/dropout.h"
#include "kernels/ops/grad_norm/grad_norm.h"
#include "kernels/ops/loss_scale/loss_scale.h"
#include "kernels/ops/optimizer_step/optimizer_step.h"
#include "kernels/ops/random_key/random_key.h"
#include "kernels/ops/sgd/sgd.h"
#include "tests/kernels/ops/harness.h"

namespace hbmtune::ops {
namespace {

using testing::Close;
using testing::HostTensor;
using testing::RunOp;

HostTensor Control(double norm, double coefficient, double found_inf) {
  return HostTensor::Of(Dtype::kF32, {kControlSize}, {norm, coefficient, found_inf});
}

TEST(Control, SkipsEveryOptimizerWithoutATrace) {
  const auto control = Control(HUGE_VAL, 1, 1), grad = HostTensor::Random(Dtype::kF32, {300}, 1);
  const auto before = HostTensor::Random(Dtype::kF32, {300}, 2);
  auto param = before, m = before, v = before, step = HostTensor::Ints({1}, {4});
  RunOp(kOptimizerStep, {control.arg()}, {step.arg()});
  EXPECT_EQ(step.At(0), 4);
  RunOp(kAdamw, {grad.arg(), step.arg(), control.arg()}, {param.arg(), m.arg(), v.arg()},
        Attrs::Of(AdamwAttrs{}));
  RunOp(kSgd, {grad.arg(), control.arg()}, {param.arg(), m.arg()},
        Attrs::Of(SgdAttrs{.momentum = 0.9}));
  auto codes = HostTensor::Zeros(Dtype::kU8, {300}), codes_sq = codes;
  auto scales = HostTensor::Zeros(Dtype::kF32, {2}), scales_sq = scales;
  RunOp(kAdamw8bit, {grad.arg(), step.arg(), control.arg()},
        {param.arg(), codes.arg(), codes_sq.arg(), scales.arg(), scales_sq.arg()},
        Attrs::Of(AdamwAttrs{}));
  EXPECT_TRUE(param.BitwiseEqual(before));
  EXPECT_TRUE(m.BitwiseEqual(before));
  EXPECT_TRUE(v.BitwiseEqual(before));
  EXPECT_TRUE(scales.BitwiseEqual(HostTensor::Zeros(Dtype::kF32, {2})));
}

TEST(OptimizerStep, CountsStepsThatAreTaken) {
  auto step = HostTensor::Ints({1}, {0});
  RunOp(kOptimizerStep, {}, {step.arg()});
  RunOp(kOptimizerStep, {Control(1, 1, 0).arg()}, {step.arg()});
  EXPECT_EQ(step.At(0), 2);
}

TEST(Adamw, AppliesTheCoefficientToTheGradient) {
  const auto grad = HostTensor::Random(Dtype::kF32, {100}, 1);
  auto scaled = grad;
  for (int64_t i = 0; i < 100; ++i) scaled.Set(i, grad.At(i) * 0.25);
  const auto step = HostTensor::Ints({1}, {1});
  auto a = HostTensor::Random(Dtype::kF32, {100}, 2), b = a;
  auto m = HostTensor::Zeros(Dtype::kF32, {100}), v = m, m2 = m, v2 = m;
  RunOp(kAdamw, {grad.arg(), step.arg(), Control(1, 0.25, 0).arg()}, {a.arg(), m.arg(), v.arg()},
        Attrs::Of(AdamwAttrs{}));
  RunOp(kAdamw, {scaled.arg(), step.arg()}, {b.arg(), m2.arg(), v2.arg()},
        Attrs::Of(AdamwAttrs{}));
  EXPECT_TRUE(a.BitwiseEqual(b));
}

TEST(Adamw, KeepsInTheMasterWhatTheParameterCannotHold) {
  const auto step = HostTensor::Ints({1}, {1});
  const auto grad = HostTensor::Of(Dtype::kBf16, {1}, {1});
  auto param = HostTensor::Of(Dtype::kBf16, {1}, {1});
  auto master = HostTensor::Of(Dtype::kF32, {1}, {1});
  auto m = HostTensor::Zeros(Dtype::kF32, {1}), v = m;
  const Attrs attrs = Attrs::Of(AdamwAttrs{.lr = 1e-3, .weight_decay = 0});
  for (int i = 0; i < 3; ++i) {
    RunOp(kAdamw, {grad.arg(), step.arg()}, {param.arg(), m.arg(), v.arg(), master.arg()}, attrs);
  }
  EXPECT_LT(master.At(0), 0.999);
  EXPECT_EQ(param.At(0), HostTensor::Of(Dtype::kBf16, {1}, {master.At(0)}).At(0));
}

TEST(Sgd, AddsMomentumAndDecay) {
  auto param = HostTensor::Of(Dtype::kF64, {1}, {2});
  auto momentum = HostTensor::Zeros(Dtype::kF64, {1});
  const auto grad = HostTensor::Of(Dtype::kF64, {1}, {3});
  const Attrs attrs = Attrs::Of(SgdAttrs{.lr = 0.1, .momentum = 0.5, .weight_decay = 0.25});
  RunOp(kSgd, {grad.arg()}, {param.arg(), momentum.arg()}, attrs);
  EXPECT_NEAR(param.At(0), 2 - 0.1 * 3.5, 1e-15);
  RunOp(kSgd, {grad.arg()}, {param.arg(), momentum.arg()}, attrs);
  const double m = 0.5 * 3.5 + 3 + 0.25 * 1.65;
  EXPECT_NEAR(param.At(0), 1.65 - 0.1 * m, 1e-15);
}

TEST(DynamicCode, IsSortedAndHoldsZeroAndOne) {
  for (const DynamicCode* code : {&SignedCode(), &UnsignedCode()}) {
    const auto& values = code->values();
    for (size_t i = 1; i < 256; ++i) EXPECT_GT(values[i], values[i - 1]) << i;
    EXPECT_EQ(values[255], 1.0f);
    EXPECT_NE(std::find(values.begin(), values.end(), 0.0f), values.end());
  }
  EXPECT_EQ(UnsignedCode().values()[0], 0.0f);
  EXPECT_LT(SignedCode().values()[0], -0.99f);
}

TEST(DynamicCode, PicksTheNearestValueOfAll) {
  for (const DynamicCode* code : {&SignedCode(), &UnsignedCode()}) {
    const auto& values = code->values();
    for (float x = 1.0f; x > 1e-8f; x *= 0.9993f) {
      for (const float signed_x : {x, code == &SignedCode() ? -x : 0.0f}) {
        const float chosen = values[code->Nearest(signed_x)];
        for (const float value : values) {
          ASSERT_LE(std::fabs(chosen - signed_x), std::fabs(value - signed_x)) << signed_x;
        }
      }
    }
  }
}

TEST(DynamicCode, GivesBackTheLargestMagnitudeAndZeros) {
  const float values[4] = {0, -3, 6, 0.75};
  uint8_t codes[4];
  float back[4];
  EXPECT_EQ(SignedCode().Encode(values, codes, 4), 6);
  SignedCode().Decode(codes, 6, back, 4);
  EXPECT_EQ(back[0], 0);
  EXPECT_EQ(back[2], 6);
  EXPECT_NEAR(back[1], -3, 6 * 0.9 / 128);
  const float zeros[2] = {0, 0};
  EXPECT_EQ(UnsignedCode().Encode(zeros, codes, 2), 0);
}

// The paper's claim in small: the path of the 8-bit state stays near that of the fp32 state.
TEST(Adamw8bit, FollowsAdamw) {
  const Dims shape = {1000};
  auto target = HostTensor::Random(Dtype::kF32, shape, 1);
  auto a = HostTensor::Zeros(Dtype::kF32, shape), b = a, m = a, v = a, grad_a = a, grad_b = a;
  auto codes = HostTensor::Zeros(Dtype::kU8, shape), codes_sq = codes;
  auto scales = HostTensor::Zeros(Dtype::kF32, {Adamw8bitBlocks(1000)}), scales_sq = scales;
  const Attrs attrs = Attrs::Of(AdamwAttrs{.lr = 0.02, .weight_decay = 0});
  for (int64_t step = 1; step <= 100; ++step) {
    for (int64_t i = 0; i < 1000; ++i) grad_a.Set(i, a.At(i) - target.At(i));
    for (int64_t i = 0; i < 1000; ++i) grad_b.Set(i, b.At(i) - target.At(i));
    const auto count = HostTensor::Ints({1}, {step});
    RunOp(kAdamw, {grad_a.arg(), count.arg()}, {a.arg(), m.arg(), v.arg()}, attrs);
    RunOp(kAdamw8bit, {grad_b.arg(), count.arg()},
          {b.arg(), codes.arg(), codes_sq.arg(), scales.arg(), scales_sq.arg()}, attrs);
  }
  EXPECT_LT(testing::RelativeError(a.Values(), target.Values()), 0.35);
  EXPECT_LT(testing::RelativeError(b.Values(), a.Values()), 0.05);
}

TEST(GradNorm, SeesOverflowAndUnscales) {
  auto x = HostTensor::Of(Dtype::kF16, {4}, {300, 400, 0, 0});
  const auto scale = HostTensor::Of(Dtype::kF32, {1}, {100});
  HostTensor partials(Dtype::kF32, {1}), control(Dtype::kF32, {kControlSize});
  const Attrs attrs = Attrs::Of(GradNormAttrs{1.0});
  RunOp(kGradNormSquares, {x.arg()}, {partials.arg()});
  RunOp(kGradNorm, {partials.arg(), scale.arg()}, {control.arg()}, attrs);
  EXPECT_NEAR(control.At(kControlNorm), 5, 1e-6);
  EXPECT_NEAR(control.At(kControlCoefficient), 1.0 / 5 / 100, 1e-8);
  EXPECT_EQ(control.At(kControlFoundInf), 0);
  for (const double bad : {HUGE_VAL, std::nan("")}) {
    x.Set(2, bad);
    RunOp(kGradNormSquares, {x.arg()}, {partials.arg()});
    RunOp(kGradNorm, {partials.arg(), scale.arg()}, {control.arg()}, attrs);
    EXPECT_EQ(control.At(kControlFoundInf), 1);
  }
}

TEST(LossScale, HalvesAfterHysteresisAndDoublesAfterTheWindow) {
  auto scale = HostTensor::Of(Dtype::kF32, {1}, {8});
  auto trackers = HostTensor::Ints({2}, {0, 2});
  const Attrs attrs = Attrs::Of(LossScaleAttrs{.window = 3, .hysteresis = 2, .min = 2});
  const auto after = [&](bool overflow) {
    RunOp(kLossScale, {Control(1, 1, overflow).arg()}, {scale.arg(), trackers.arg()}, attrs);
    return scale.At(0);
  };
  EXPECT_EQ(after(true), 8);  // the first is forgiven
  EXPECT_EQ(after(true), 4);
  EXPECT_EQ(after(true), 2);
  EXPECT_EQ(after(true), 2);  // the floor
  EXPECT_EQ(after(false), 2);
  EXPECT_EQ(after(false), 2);
  EXPECT_EQ(after(false), 4);
  EXPECT_EQ(after(true), 4);  // hysteresis is back
  EXPECT_EQ(after(false), 4);
}

TEST(Dropout, ReplaysUnderTheSameKeyAndOnlyThen) {
  auto state = HostTensor::Ints({2}, {17, 0});
  HostTensor first(Dtype::kI64, {2}), second(Dtype::kI64, {2});
  RunOp(kRandomKey, {state.arg()}, {first.arg(), state.arg()});
  RunOp(kRandomKey, {state.arg()}, {second.arg(), state.arg()});
  EXPECT_EQ(second.At(1), 1);
  const auto x = HostTensor::Random(Dtype::kF32, {5000}, 1);
  const auto drop = [&](const HostTensor& key, int64_t site) {
    HostTensor y(Dtype::kF32, {5000});
    RunOp(kDropout, {x.arg(), key.arg()}, {y.arg()}, Attrs::Of(DropoutAttrs{0.3, site}));
    return y;
  };
  const HostTensor y = drop(first, 0);
  EXPECT_TRUE(y.BitwiseEqual(drop(first, 0)));
  EXPECT_FALSE(y.BitwiseEqual(drop(first, 1)));
  EXPECT_FALSE(y.BitwiseEqual(drop(second, 0)));
}

TEST(Dropout, DropsItsShareAndKeepsTheMean) {
  const auto key = HostTensor::Ints({2}, {17, 0});
  auto x = HostTensor::Zeros(Dtype::kF32, {100000});
  for (int64_t i = 0; i < x.elements(); ++i) x.Set(i, 1);
  HostTensor y(Dtype::kF32, {100000});
  RunOp(kDropout, {x.arg(), key.arg()}, {y.arg()}, Attrs::Of(DropoutAttrs{0.3, 0}));
  int64_t dropped = 0;
  for (int64_t i = 0; i < y.elements(); ++i) {
    dropped += y.At(i) == 0;
    EXPECT_TRUE(y.At(i) == 0 || std::fabs(y.At(i) - 1 / 0.7) < 1e-6);
  }
  // Standard deviation √(n·p·q) = 145; five of them.
  EXPECT_NEAR(static_cast<double>(dropped), 30000, 725);
}

}  // namespace
}  // namespace hbmtune::ops

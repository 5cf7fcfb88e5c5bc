// The backward pass of every op against central differences of its forward pass, in fp64.

#include <cmath>

#include "kernels/ops/attention_materialised/attention_materialised.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/dropout/dropout.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/layer_norm/layer_norm.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/positions/positions.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/rotary/rotary.h"
#include "kernels/ops/scale/scale.h"
#include "kernels/ops/silu_gate/silu_gate.h"
#include "tests/kernels/ops/harness.h"

namespace hbmtune::ops {
namespace {

using testing::Close;
using testing::Dot;
using testing::HostTensor;
using testing::RunOp;

// Steps of 1e-5 leave an error of about 1e-10 · f‴/6 and of 1e-16/1e-5 · f.
constexpr double kTolerance = 1e-8;

HostTensor Random(Dims shape, uint64_t seed) {
  return HostTensor::Random(Dtype::kF64, shape, seed);
}
HostTensor Empty(Dims shape) { return {Dtype::kF64, shape}; }

void ExpectGradient(const std::function<double()>& loss, HostTensor& x, const HostTensor& dx,
                    const char* name) {
  EXPECT_TRUE(Close(dx.Values(), testing::FiniteDifference(loss, x), kTolerance)) << name;
}

TEST(RmsNormBackward, IsTheSlope) {
  auto x = Random({5, 7}, 1), weight = Random({7}, 2), w = Random({5, 7}, 3);
  auto y = Empty({5, 7}), rstd = Empty({5}), dx = Empty({5, 7}), dweight = Empty({7});
  auto partials = Empty({NormPartials(5), 7});
  const auto loss = [&] {
    RunOp(kRmsNorm, {x.arg(), weight.arg()}, {y.arg(), rstd.arg()}, Attrs::Of(NormAttrs{0.1}));
    return Dot(y, w);
  };
  loss();
  RunOp(kRmsNormBackward, {w.arg(), x.arg(), weight.arg(), rstd.arg()},
        {dx.arg(), dweight.arg(), partials.arg()}, Attrs::Of(NormBackwardAttrs{}));
  ExpectGradient(loss, x, dx, "x");
  ExpectGradient(loss, weight, dweight, "weight");
}

TEST(LayerNormBackward, IsTheSlope) {
  auto x = Random({5, 7}, 1), weight = Random({7}, 2), bias = Random({7}, 4);
  auto w = Random({5, 7}, 3), y = Empty({5, 7}), mean = Empty({5}), rstd = Empty({5});
  auto dx = Empty({5, 7}), dweight = Empty({7}), dbias = Empty({7});
  auto partials = Empty({2 * NormPartials(5), 7});
  const auto loss = [&] {
    RunOp(kLayerNorm, {x.arg(), weight.arg(), bias.arg()}, {y.arg(), mean.arg(), rstd.arg()},
          Attrs::Of(NormAttrs{0.1}));
    return Dot(y, w);
  };
  loss();
  RunOp(kLayerNormBackward, {w.arg(), x.arg(), weight.arg(), mean.arg(), rstd.arg()},
        {dx.arg(), dweight.arg(), dbias.arg(), partials.arg()}, Attrs::Of(NormBackwardAttrs{}));
  ExpectGradient(loss, x, dx, "x");
  ExpectGradient(loss, weight, dweight, "weight");
  ExpectGradient(loss, bias, dbias, "bias");
}

TEST(LinearBackward, IsTheSlopeInBothLayoutsOfTheWeight) {
  for (const int64_t in_out : {0, 1}) {
    const Attrs attrs = Attrs::Of(LinearAttrs{.alpha = 0.7, .weight_in_out = in_out});
    const Dims weight_shape = in_out ? Dims{5, 3} : Dims{3, 5};
    auto x = Random({2, 2, 5}, 1), weight = Random(weight_shape, 2), bias = Random({3}, 3);
    auto w = Random({2, 2, 3}, 4), y = Empty({2, 2, 3});
    auto dx = Empty({2, 2, 5}), dweight = Empty(weight_shape), dbias = Empty({3});
    const auto loss = [&] {
      RunOp(kLinear, {x.arg(), weight.arg(), bias.arg()}, {y.arg()}, attrs);
      return Dot(y, w);
    };
    RunOp(kLinearBackwardInput, {w.arg(), weight.arg()}, {dx.arg()}, attrs);
    RunOp(kLinearBackwardWeight, {w.arg(), x.arg()}, {dweight.arg()}, attrs);
    RunOp(kLinearBackwardBias, {w.arg()}, {dbias.arg()}, Attrs::Of(LinearBackwardBiasAttrs{}));
    ExpectGradient(loss, x, dx, "x");
    ExpectGradient(loss, weight, dweight, "weight");
    ExpectGradient(loss, bias, dbias, "bias");
  }
}

TEST(EmbeddingBackward, IsTheSlope) {
  const auto ids = HostTensor::Ints({2, 3}, {4, 1, 4, 0, 4, 2});
  auto weight = Random({6, 5}, 1), positions = Random({4, 5}, 2), w = Random({2, 3, 5}, 3);
  auto y = Empty({2, 3, 5}), dweight = Empty({6, 5}), dpositions = Empty({4, 5});
  const auto loss = [&] {
    RunOp(kEmbedding, {ids.arg(), weight.arg()}, {y.arg()});
    RunOp(kPositions, {y.arg(), positions.arg()}, {y.arg()});
    return Dot(y, w);
  };
  RunOp(kEmbeddingBackward, {w.arg(), ids.arg()}, {dweight.arg()},
        Attrs::Of(EmbeddingBackwardAttrs{}));
  RunOp(kPositionsBackward, {w.arg()}, {dpositions.arg()}, Attrs::Of(PositionsBackwardAttrs{}));
  ExpectGradient(loss, weight, dweight, "weight");
  ExpectGradient(loss, positions, dpositions, "positions");
}

TEST(PositionsBackward, IsTheSlopeWithDocuments) {
  const auto starts = HostTensor::Ints({2, 4}, {0, 0, 2, 2, 0, 1, 1, 1});
  auto x = Random({2, 4, 5}, 1), weight = Random({4, 5}, 2), w = Random({2, 4, 5}, 3);
  auto y = Empty({2, 4, 5}), dweight = Empty({4, 5});
  const auto loss = [&] {
    RunOp(kPositions, {x.arg(), weight.arg(), starts.arg()}, {y.arg()});
    return Dot(y, w);
  };
  RunOp(kPositionsBackward, {w.arg(), starts.arg()}, {dweight.arg()},
        Attrs::Of(PositionsBackwardAttrs{}));
  ExpectGradient(loss, weight, dweight, "weight");
}

TEST(RotaryInverse, IsTheSlopeWithDocuments) {
  const auto starts = HostTensor::Ints({2, 3}, {0, 0, 2, 0, 1, 1});
  auto x = Random({2, 3, 2, 6}, 1), w = Random({2, 3, 2, 6}, 2), y = Empty({2, 3, 2, 6});
  auto dx = Empty({2, 3, 2, 6}), cos = Empty({3, 3}), sin = Empty({3, 3});
  RunOp(kRotaryTable, {}, {cos.arg(), sin.arg()}, Attrs::Of(RotaryTableAttrs{100, 2}));
  const auto loss = [&] {
    RunOp(kRotary, {x.arg(), cos.arg(), sin.arg(), starts.arg()}, {y.arg()},
          Attrs::Of(RotaryAttrs{0}));
    return Dot(y, w);
  };
  RunOp(kRotary, {w.arg(), cos.arg(), sin.arg(), starts.arg()}, {dx.arg()},
        Attrs::Of(RotaryAttrs{1}));
  ExpectGradient(loss, x, dx, "x");
}

TEST(RotaryInverse, IsTheSlope) {
  auto x = Random({2, 3, 2, 6}, 1), w = Random({2, 3, 2, 6}, 2), y = Empty({2, 3, 2, 6});
  auto dx = Empty({2, 3, 2, 6}), cos = Empty({3, 3}), sin = Empty({3, 3});
  RunOp(kRotaryTable, {}, {cos.arg(), sin.arg()}, Attrs::Of(RotaryTableAttrs{100, 2}));
  const auto loss = [&] {
    RunOp(kRotary, {x.arg(), cos.arg(), sin.arg()}, {y.arg()}, Attrs::Of(RotaryAttrs{0}));
    return Dot(y, w);
  };
  RunOp(kRotary, {w.arg(), cos.arg(), sin.arg()}, {dx.arg()}, Attrs::Of(RotaryAttrs{1}));
  ExpectGradient(loss, x, dx, "x");
}

TEST(SiluGateBackward, IsTheSlope) {
  auto gate = Random({4, 5}, 1), up = Random({4, 5}, 2), w = Random({4, 5}, 3);
  auto y = Empty({4, 5}), dgate = Empty({4, 5}), dup = Empty({4, 5});
  const auto loss = [&] {
    RunOp(kSiluGate, {gate.arg(), up.arg()}, {y.arg()});
    return Dot(y, w);
  };
  RunOp(kSiluGateBackward, {w.arg(), gate.arg(), up.arg()}, {dgate.arg(), dup.arg()});
  ExpectGradient(loss, gate, dgate, "gate");
  ExpectGradient(loss, up, dup, "up");
}

TEST(GeluBackward, IsTheSlopeInBothForms) {
  for (const int64_t tanh_form : {0, 1}) {
    auto x = Random({4, 5}, 1), w = Random({4, 5}, 2), y = Empty({4, 5}), dx = Empty({4, 5});
    const Attrs attrs = Attrs::Of(GeluAttrs{tanh_form});
    const auto loss = [&] {
      RunOp(kGelu, {x.arg()}, {y.arg()}, attrs);
      return Dot(y, w);
    };
    RunOp(kGeluBackward, {w.arg(), x.arg()}, {dx.arg()}, attrs);
    ExpectGradient(loss, x, dx, "x");
  }
}

TEST(DropoutBackward, IsTheSlope) {
  const auto key = HostTensor::Ints({2}, {99, 5});
  auto x = Random({4, 5}, 1), w = Random({4, 5}, 2), y = Empty({4, 5}), dx = Empty({4, 5});
  const Attrs attrs = Attrs::Of(DropoutAttrs{0.4, 1});
  const auto loss = [&] {
    RunOp(kDropout, {x.arg(), key.arg()}, {y.arg()}, attrs);
    return Dot(y, w);
  };
  RunOp(kDropout, {w.arg(), key.arg()}, {dx.arg()}, attrs);
  ExpectGradient(loss, x, dx, "x");
}

TEST(CrossEntropy, GivesTheSlopeOfTheScaledMean) {
  const auto targets = HostTensor::Ints({4}, {2, -100, 0, 4});
  const auto count = HostTensor::Of(Dtype::kF64, {1}, {3});
  const auto loss_scale = HostTensor::Of(Dtype::kF64, {1}, {16});
  auto logits = Random({4, 5}, 1), losses = Empty({4}), mean = Empty({1});
  auto dlogits = Empty({4, 5});
  const Attrs attrs = Attrs::Of(CrossEntropyAttrs{.grad_scale = 0.5});
  const auto loss = [&] {
    RunOp(kCrossEntropy, {logits.arg(), targets.arg(), count.arg()}, {losses.arg()}, attrs);
    RunOp(kCrossEntropyMean, {losses.arg(), count.arg()}, {mean.arg()},
          Attrs::Of(CrossEntropyMeanAttrs{0.5, 0}));
    return 16 * mean.At(0);
  };
  RunOp(kCrossEntropy, {logits.arg(), targets.arg(), count.arg(), loss_scale.arg()},
        {losses.arg(), dlogits.arg()}, attrs);
  ExpectGradient(loss, logits, dlogits, "logits");
}

struct AttentionCase {
  const char* name;
  int64_t kv_heads;
  AttentionAttrs attrs;
};

class AttentionBackward : public ::testing::TestWithParam<AttentionCase> {
 protected:
  static constexpr int64_t kLength = 7;
  Dims rows_ = {2, 4, kLength}, square_ = {2, 4, kLength, kLength};
  Dims q_shape_ = {2, kLength, 4, 3}, k_shape_ = {2, kLength, GetParam().kv_heads, 3};
  HostTensor q_ = Random(q_shape_, 1), k_ = Random(k_shape_, 2), v_ = Random(k_shape_, 3);
  HostTensor w_ = Random(q_shape_, 4), o_ = Empty(q_shape_);
  HostTensor dq_ = Empty(q_shape_), dk_ = Empty(k_shape_), dv_ = Empty(k_shape_);
  HostTensor key_ = HostTensor::Ints({2}, {7, 11});
  HostTensor starts_ = HostTensor::Ints({2, kLength}, {0, 0, 0, 3, 3, 3, 6, 0, 1, 1, 1, 1, 5, 5});
  Attrs attrs_ = Attrs::Of(GetParam().attrs);

  std::vector<TensorArg> WithKey(std::vector<TensorArg> in) const {
    if (GetParam().attrs.dropout > 0) in.push_back(key_.arg());
    if (GetParam().attrs.documents != 0) in.push_back(starts_.arg());
    return in;
  }
  void ExpectGradients(const std::function<double()>& loss) {
    ExpectGradient(loss, q_, dq_, "q");
    ExpectGradient(loss, k_, dk_, "k");
    ExpectGradient(loss, v_, dv_, "v");
  }
};

TEST_P(AttentionBackward, IsTheSlopeWhenMaterialised) {
  auto probabilities = Empty(square_), scores = Empty(square_);
  const auto loss = [&] {
    RunOp(kAttentionMaterialised, WithKey({q_.arg(), k_.arg(), v_.arg()}),
          {o_.arg(), probabilities.arg()}, attrs_);
    return Dot(o_, w_);
  };
  loss();
  RunOp(kAttentionMaterialisedBackward,
        WithKey({w_.arg(), q_.arg(), k_.arg(), v_.arg(), probabilities.arg()}),
        {dq_.arg(), dk_.arg(), dv_.arg(), scores.arg()}, attrs_);
  ExpectGradients(loss);
}

TEST_P(AttentionBackward, IsTheSlopeWhenTiled) {
  auto lse = Empty(rows_), delta = Empty(rows_);
  const auto loss = [&] {
    RunOp(kAttentionTiled, WithKey({q_.arg(), k_.arg(), v_.arg()}), {o_.arg(), lse.arg()},
          attrs_);
    return Dot(o_, w_);
  };
  loss();
  RunOp(kAttentionTiledBackward,
        WithKey({w_.arg(), q_.arg(), k_.arg(), v_.arg(), o_.arg(), lse.arg()}),
        {dq_.arg(), dk_.arg(), dv_.arg(), delta.arg()}, attrs_);
  ExpectGradients(loss);
}

INSTANTIATE_TEST_SUITE_P(
    Masks, AttentionBackward,
    ::testing::Values(AttentionCase{"causal", 4, {.scale = 0.6}},
                      AttentionCase{"full", 2, {.scale = 0.6, .causal = 0}},
                      AttentionCase{"window", 1, {.scale = 0.6, .window = 3}},
                      AttentionCase{"dropout", 2, {.scale = 0.6, .dropout = 0.3, .site = 2}},
                      AttentionCase{"documents", 2, {.scale = 0.6, .documents = 1}},
                      AttentionCase{"documents_dropout", 1,
                                    {.scale = 0.6, .window = 2, .dropout = 0.3, .documents = 1}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hbmtune::ops

// Every op in fp64 against numbers recorded from PyTorch (tests/reference).

#include <cmath>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/attention_materialised/attention_materialised.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/grad_norm/grad_norm.h"
#include "kernels/ops/layer_norm/layer_norm.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/rotary/rotary.h"
#include "kernels/ops/scale/scale.h"
#include "kernels/ops/silu_gate/silu_gate.h"
#include "tests/kernels/ops/harness.h"
#include "tests/support/safetensors.h"

namespace hbmtune::ops {
namespace {

using testing::Close;
using testing::HostTensor;
using testing::RunOp;

// Both sides sum in fp64, in orders of their own.
constexpr double kTolerance = 1e-13;

const testing::SafetensorsFile& File() {
  static const testing::SafetensorsFile file(HBMTUNE_TEST_DATA "/torch/ops.safetensors");
  return file;
}

HostTensor Recorded(const std::string& name) {
  return HostTensor::Of(Dtype::kF64, Dims(File().Shape(name)), File().Values(name));
}

HostTensor Like(const HostTensor& tensor) { return {Dtype::kF64, tensor.shape()}; }

void ExpectRecorded(const HostTensor& tensor, const std::string& name) {
  EXPECT_TRUE(Close(tensor.Values(), File().Values(name), kTolerance)) << name;
}

TEST(RmsNorm, IsTorchs) {
  const auto x = Recorded("rms_norm/x"), weight = Recorded("rms_norm/weight");
  const auto dy = Recorded("rms_norm/dy");
  auto y = Like(x), dx = Like(x), dweight = Like(weight);
  HostTensor rstd(Dtype::kF64, {3, 5}), partials(Dtype::kF64, {NormPartials(15), 8});
  RunOp(kRmsNorm, {x.arg(), weight.arg()}, {y.arg(), rstd.arg()}, Attrs::Of(NormAttrs{1e-5}));
  ExpectRecorded(y, "rms_norm/y");
  RunOp(kRmsNormBackward, {dy.arg(), x.arg(), weight.arg(), rstd.arg()},
        {dx.arg(), dweight.arg(), partials.arg()}, Attrs::Of(NormBackwardAttrs{}));
  ExpectRecorded(dx, "rms_norm/dx");
  ExpectRecorded(dweight, "rms_norm/dweight");
}

TEST(LayerNorm, IsTorchs) {
  const auto x = Recorded("layer_norm/x"), weight = Recorded("layer_norm/weight");
  const auto bias = Recorded("layer_norm/bias"), dy = Recorded("layer_norm/dy");
  auto y = Like(x), dx = Like(x), dweight = Like(weight), dbias = Like(bias);
  HostTensor mean(Dtype::kF64, {15}), rstd(Dtype::kF64, {15});
  HostTensor partials(Dtype::kF64, {2 * NormPartials(15), 8});
  RunOp(kLayerNorm, {x.arg(), weight.arg(), bias.arg()}, {y.arg(), mean.arg(), rstd.arg()},
        Attrs::Of(NormAttrs{1e-5}));
  ExpectRecorded(y, "layer_norm/y");
  RunOp(kLayerNormBackward, {dy.arg(), x.arg(), weight.arg(), mean.arg(), rstd.arg()},
        {dx.arg(), dweight.arg(), dbias.arg(), partials.arg()}, Attrs::Of(NormBackwardAttrs{}));
  ExpectRecorded(dx, "layer_norm/dx");
  ExpectRecorded(dweight, "layer_norm/dweight");
  ExpectRecorded(dbias, "layer_norm/dbias");
}

TEST(Gelu, IsTorchsInBothForms) {
  for (const int64_t tanh_form : {0, 1}) {
    const std::string name = tanh_form ? "gelu_tanh/" : "gelu_erf/";
    const auto x = Recorded(name + "x"), dy = Recorded(name + "dy");
    auto y = Like(x), dx = Like(x);
    const Attrs attrs = Attrs::Of(GeluAttrs{tanh_form});
    RunOp(kGelu, {x.arg()}, {y.arg()}, attrs);
    ExpectRecorded(y, name + "y");
    RunOp(kGeluBackward, {dy.arg(), x.arg()}, {dx.arg()}, attrs);
    ExpectRecorded(dx, name + "dx");
  }
}

TEST(SiluGate, IsTorchs) {
  const auto gate = Recorded("silu_gate/gate"), up = Recorded("silu_gate/up");
  const auto dy = Recorded("silu_gate/dy");
  auto y = Like(gate), dgate = Like(gate), dup = Like(up), again = Like(up);
  RunOp(kSiluGate, {gate.arg(), up.arg()}, {y.arg()});
  ExpectRecorded(y, "silu_gate/y");
  RunOp(kSiluGateBackward, {dy.arg(), gate.arg(), up.arg()},
        {dgate.arg(), dup.arg(), again.arg()});
  ExpectRecorded(dgate, "silu_gate/dgate");
  ExpectRecorded(dup, "silu_gate/dup");
  ExpectRecorded(again, "silu_gate/y");
}

// A recorded [B, H, S, D] tensor as the [B, S, H, D] view that the ops take.
TensorArg SequenceFirst(const HostTensor& tensor) {
  const Dims& s = tensor.shape();
  return tensor.View({s[0], s[2], s[1], s[3]}, {s[1] * s[2] * s[3], s[3], s[2] * s[3], 1});
}

TEST(Rotary, IsTorchs) {
  const auto x = Recorded("rotary/x"), dy = Recorded("rotary/dy");
  auto y = Like(x), dx = Like(x);
  HostTensor cos(Dtype::kF64, {6, 4}), sin(Dtype::kF64, {6, 4});
  RunOp(kRotaryTable, {}, {cos.arg(), sin.arg()}, Attrs::Of(RotaryTableAttrs{10000, 0}));
  RunOp(kRotary, {SequenceFirst(x), cos.arg(), sin.arg()}, {SequenceFirst(y)},
        Attrs::Of(RotaryAttrs{0}));
  ExpectRecorded(y, "rotary/y");
  RunOp(kRotary, {SequenceFirst(dy), cos.arg(), sin.arg()}, {SequenceFirst(dx)},
        Attrs::Of(RotaryAttrs{1}));
  ExpectRecorded(dx, "rotary/dx");
}

TEST(Embedding, IsTorchs) {
  const auto ids = HostTensor::Ints({2, 6}, File().Integers("embedding/tokens"));
  const auto weight = Recorded("embedding/weight"), dy = Recorded("embedding/dy");
  auto y = Like(dy), dweight = Like(weight);
  RunOp(kEmbedding, {ids.arg(), weight.arg()}, {y.arg()});
  ExpectRecorded(y, "embedding/y");
  RunOp(kEmbeddingBackward, {dy.arg(), ids.arg()}, {dweight.arg()},
        Attrs::Of(EmbeddingBackwardAttrs{}));
  ExpectRecorded(dweight, "embedding/dweight");
}

TEST(Linear, IsTorchs) {
  const auto x = Recorded("linear/input"), weight = Recorded("linear/weight");
  const auto bias = Recorded("linear/bias"), dy = Recorded("linear/dy");
  auto y = Like(dy), dx = Like(x), dweight = Like(weight), dbias = Like(bias);
  const Attrs attrs = Attrs::Of(LinearAttrs{});
  RunOp(kLinear, {x.arg(), weight.arg(), bias.arg()}, {y.arg()}, attrs);
  ExpectRecorded(y, "linear/y");
  RunOp(kLinearBackwardInput, {dy.arg(), weight.arg()}, {dx.arg()}, attrs);
  ExpectRecorded(dx, "linear/dinput");
  RunOp(kLinearBackwardWeight, {dy.arg(), x.arg()}, {dweight.arg()}, attrs);
  ExpectRecorded(dweight, "linear/dweight");
  RunOp(kLinearBackwardBias, {dy.arg()}, {dbias.arg()}, Attrs::Of(LinearBackwardBiasAttrs{}));
  ExpectRecorded(dbias, "linear/dbias");
}

class Attention : public ::testing::TestWithParam<const char*> {
 protected:
  std::string name_ = std::string("attention_") + GetParam() + "/";
  HostTensor q_ = Recorded(name_ + "query"), k_ = Recorded(name_ + "key");
  HostTensor v_ = Recorded(name_ + "value"), grad_ = Recorded(name_ + "dy");
  HostTensor o_ = Like(q_), dq_ = Like(q_), dk_ = Like(k_), dv_ = Like(v_);
  Dims rows_ = {q_.shape()[0], q_.shape()[1], q_.shape()[2]};
  Dims square_ = {rows_[0], rows_[1], rows_[2], rows_[2]};
  Attrs attrs_ =
      Attrs::Of(AttentionAttrs{.scale = 1 / std::sqrt(static_cast<double>(q_.shape()[3]))});

  void ExpectGradients() {
    ExpectRecorded(dq_, name_ + "dquery");
    ExpectRecorded(dk_, name_ + "dkey");
    ExpectRecorded(dv_, name_ + "dvalue");
  }
};

TEST_P(Attention, MaterialisedIsTorchs) {
  HostTensor probabilities(Dtype::kF64, square_), scores(Dtype::kF64, square_);
  const auto q = SequenceFirst(q_), k = SequenceFirst(k_), v = SequenceFirst(v_);
  RunOp(kAttentionMaterialised, {q, k, v}, {SequenceFirst(o_), probabilities.arg()}, attrs_);
  ExpectRecorded(o_, name_ + "y");
  RunOp(kAttentionMaterialisedBackward, {SequenceFirst(grad_), q, k, v, probabilities.arg()},
        {SequenceFirst(dq_), SequenceFirst(dk_), SequenceFirst(dv_), scores.arg()}, attrs_);
  ExpectGradients();
}

TEST_P(Attention, TiledIsTorchs) {
  HostTensor lse(Dtype::kF64, rows_), delta(Dtype::kF64, rows_);
  const auto q = SequenceFirst(q_), k = SequenceFirst(k_), v = SequenceFirst(v_);
  RunOp(kAttentionTiled, {q, k, v}, {SequenceFirst(o_), lse.arg()}, attrs_);
  ExpectRecorded(o_, name_ + "y");
  RunOp(kAttentionTiledBackward, {SequenceFirst(grad_), q, k, v, SequenceFirst(o_), lse.arg()},
        {SequenceFirst(dq_), SequenceFirst(dk_), SequenceFirst(dv_), delta.arg()}, attrs_);
  ExpectGradients();
}

INSTANTIATE_TEST_SUITE_P(Heads, Attention, ::testing::Values("mha", "gqa", "mqa"));

TEST(CrossEntropy, IsTorchs) {
  const auto logits = Recorded("softmax_cross_entropy/logits");
  const auto targets = HostTensor::Ints({10}, File().Integers("softmax_cross_entropy/targets"));
  const auto count = HostTensor::Of(Dtype::kF32, {1}, {8});
  auto losses = HostTensor(Dtype::kF64, {10}), dlogits = Like(logits);
  auto loss = HostTensor(Dtype::kF64, {1});
  const double dy = File().Values("softmax_cross_entropy/dy")[0];
  RunOp(kCrossEntropy, {logits.arg(), targets.arg(), count.arg()}, {losses.arg(), dlogits.arg()},
        Attrs::Of(CrossEntropyAttrs{.grad_scale = dy}));
  RunOp(kCrossEntropyMean, {losses.arg(), count.arg()}, {loss.arg()},
        Attrs::Of(CrossEntropyMeanAttrs{}));
  ExpectRecorded(loss, "softmax_cross_entropy/y");
  ExpectRecorded(dlogits, "softmax_cross_entropy/dlogits");
}

TEST(Adamw, IsTorchsOverFiveSteps) {
  auto param = Recorded("adamw/before");
  auto m = HostTensor::Zeros(Dtype::kF64, {16}), v = HostTensor::Zeros(Dtype::kF64, {16});
  const auto gradients = File().Values("adamw/gradients"), after = File().Values("adamw/after");
  const Attrs attrs = Attrs::Of(AdamwAttrs{.lr = 0.01, .weight_decay = 0.1});
  for (int64_t step = 0; step < 5; ++step) {
    const auto begin = gradients.begin() + step * 16;
    const auto grad = HostTensor::Of(Dtype::kF64, {16}, {begin, begin + 16});
    const auto count = HostTensor::Ints({1}, {step + 1});
    RunOp(kAdamw, {grad.arg(), count.arg()}, {param.arg(), m.arg(), v.arg()}, attrs);
    const std::vector<double> expected(after.begin() + step * 16, after.begin() + step * 16 + 16);
    EXPECT_TRUE(Close(param.Values(), expected, kTolerance)) << "step " << step;
  }
  ExpectRecorded(m, "adamw/exp_avg");
  ExpectRecorded(v, "adamw/exp_avg_sq");
}

TEST(GradNorm, ClipsAsTorchDoes) {
  const auto first = Recorded("clip/first"), second = Recorded("clip/second");
  HostTensor partials(Dtype::kF64, {2}), control(Dtype::kF64, {kControlSize});
  RunOp(kGradNormSquares, {first.arg()}, {partials.View({1}, {1}, 0)});
  RunOp(kGradNormSquares, {second.arg()}, {partials.View({1}, {1}, 1)});
  RunOp(kGradNorm, {partials.arg()}, {control.arg()}, Attrs::Of(GradNormAttrs{1.0}));
  EXPECT_NEAR(control.At(kControlNorm), File().Values("clip/norm")[0], 1e-13);
  EXPECT_EQ(control.At(kControlFoundInf), 0);
  auto clipped = Like(second);
  RunOp(kScale, {second.arg(), control.View({1}, {1}, kControlCoefficient)}, {clipped.arg()},
        Attrs::Of(ScaleAttrs{}));
  ExpectRecorded(clipped, "clip/second_clipped");
}

}  // namespace
}  // namespace hbmtune::ops

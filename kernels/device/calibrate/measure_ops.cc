#include "kernels/device/calibrate/measure_ops.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/core/float16.h"
#include "kernels/device/calibrate/stopwatch.h"
#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/add/add.h"
#include "kernels/ops/attention_materialised/attention_materialised.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/grad_norm/grad_norm.h"
#include "kernels/ops/layer_norm/layer_norm.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/rotary/rotary.h"
#include "kernels/ops/silu_gate/silu_gate.h"
#include "kernels/program/tape.h"

namespace hbmtune::device {
namespace {

// A dense tensor with storage; numbers near 1, so that nothing under- or overflows.
class Tensor {
 public:
  Tensor(Dtype dtype, Dims shape) {
    arg_.dtype = dtype;
    arg_.shape = shape;
    arg_.strides = DenseStrides(shape);
    storage_ = std::make_unique<char[]>(static_cast<size_t>(arg_.bytes()) + 64);
    const auto address = reinterpret_cast<uintptr_t>(storage_.get());
    arg_.data = storage_.get() + (64 - address % 64) % 64;
    for (int64_t i = 0; i < arg_.elements(); ++i) Set(i, 0.5F + 0.001F * float(i % 997));
  }
  const TensorArg& arg() const { return arg_; }

 private:
  void Set(int64_t i, float value) {
    switch (arg_.dtype) {
      case Dtype::kBf16: arg_.as<Bf16>()[i] = NarrowToBf16(value); break;
      case Dtype::kF16: arg_.as<F16>()[i] = NarrowToF16(value); break;
      case Dtype::kI64: arg_.as<int64_t>()[i] = 1; break;
      default: arg_.as<float>()[i] = value;
    }
  }

  TensorArg arg_;
  std::unique_ptr<char[]> storage_;
};

// An op with its tensors.
class Call {
 public:
  Call(const OpKind& op, std::initializer_list<const Tensor*> in,
       std::initializer_list<const Tensor*> out, Attrs attrs = {})
      : op_(op) {
    for (const Tensor* tensor : in) in_.push_back(tensor->arg());
    for (const Tensor* tensor : out) out_.push_back(tensor->arg());
    args_ = {in_, out_, attrs};
    op.check(args_);
  }
  Call(const Call&) = delete;

  void Run() const { op_.host(args_); }
  Cost cost() const { return op_.cost(args_); }
  const OpKind& op() const { return op_; }
  // As a dry run knows the call: the type of its first argument.
  Dtype dtype() const { return in_.empty() ? Dtype::kF32 : in_[0].dtype; }

 private:
  const OpKind& op_;
  std::vector<TensorArg> in_, out_;
  OpArgs args_;
};

// What a step touches before it comes back to the tensors of a call. Most of them it wrote or read
// a few ops ago: they are out of the second-level caches, which are 0.5 to 2 MiB a core, and in the
// third. Parameters, their gradients and their optimizer state come once a step: out of all caches.
constexpr int64_t kFewOpsBytes = 4 << 20;
constexpr int64_t kStepBytes = 96 << 20;

// Measured warm, as by calling the op again and again, a step of 20 M parameters came out 10 %
// too fast and its AdamW twice too fast.
void TouchElsewhere(int64_t bytes) {
  static std::vector<float> elsewhere(kStepBytes / sizeof(float), 1);
#pragma omp parallel for simd
  for (int64_t i = 0; i < bytes / int64_t{sizeof(float)}; ++i) elsewhere[size_t(i)] += 1;
}

// The median of calls like this one, after so much else.
OpPoint Measure(const Call& call, int64_t elsewhere_bytes = kFewOpsBytes) {
  const Cost cost = call.cost();
  const bool flops = cost.kind == CostClass::kMatmul || cost.kind == CostClass::kAttention;
  OpPoint point;
  point.op = call.op().name;
  point.dtype = call.dtype();
  if (flops) point.m = cost.m, point.n = cost.n, point.k = cost.k;
  point.work = flops ? cost.flops : cost.bytes_read + cost.bytes_written;
  point.seconds =
      MedianSeconds([&] { call.Run(); }, 0.03, [&] { TouchElsewhere(elsewhere_bytes); });
  return point;
}

}  // namespace

std::vector<OpPoint> MeasureProducts(Dtype dtype, int64_t m, int64_t n, int64_t k) {
  const Tensor x(dtype, {m, k}), w(dtype, {n, k}), y(dtype, {m, n});
  const Attrs attrs = Attrs::Of(ops::LinearAttrs{});
  return {Measure({ops::kLinear, {&x, &w}, {&y}, attrs}),
          Measure({ops::kLinearBackwardInput, {&y, &w}, {&x}, attrs}),
          Measure({ops::kLinearBackwardWeight, {&y, &x}, {&w}, attrs})};
}

std::vector<OpPoint> MeasureAttention(Dtype dtype, int64_t batch, int64_t tokens, int64_t heads,
                                      int64_t width) {
  const Dims shape = {batch, tokens, heads, width}, rows = {batch, heads, tokens};
  const Tensor q(dtype, shape), k(dtype, shape), v(dtype, shape), o(dtype, shape);
  const Tensor dq(dtype, shape), dk(dtype, shape), dv(dtype, shape);
  const Tensor lse(Dtype::kF32, rows), delta(Dtype::kF32, rows);
  const Tensor scores(dtype, {batch, heads, tokens, tokens});
  const Tensor dscores(dtype, {batch, heads, tokens, tokens});
  ops::AttentionAttrs settings;
  settings.scale = 1 / std::sqrt(double(width));
  const Attrs attrs = Attrs::Of(settings);
  return {
      Measure({ops::kAttentionTiled, {&q, &k, &v}, {&o, &lse}, attrs}),
      Measure({ops::kAttentionTiledBackward, {&o, &q, &k, &v, &o, &lse}, {&dq, &dk, &dv, &delta},
               attrs}),
      Measure({ops::kAttentionMaterialised, {&q, &k, &v}, {&o, &scores}, attrs}),
      Measure({ops::kAttentionMaterialisedBackward, {&o, &q, &k, &v, &scores},
               {&dq, &dk, &dv, &dscores}, attrs})};
}

std::vector<OpPoint> MeasureRows(Dtype dtype, int64_t rows, int64_t width) {
  const Dims shape = {rows, width}, heads = {1, rows, width / 32, 32}, angles = {rows, 16};
  const Tensor a(dtype, shape), b(dtype, shape), c(dtype, shape), d(dtype, shape);
  const Tensor x(dtype, heads), y(dtype, heads), wide(Dtype::kF32, shape);
  const Tensor cos(Dtype::kF32, angles), sin(Dtype::kF32, angles);
  const Tensor weight(dtype, {width}), bias(dtype, {width});
  const Tensor dweight(dtype, {width}), dbias(dtype, {width});
  const Tensor mean(Dtype::kF32, {rows}), rstd(Dtype::kF32, {rows});
  const Tensor partials(Dtype::kF32, {ops::NormPartials(rows), width});
  const Tensor two_partials(Dtype::kF32, {2 * ops::NormPartials(rows), width});
  const Tensor targets(Dtype::kI64, {rows}), count(Dtype::kF32, {1}), losses(Dtype::kF32, {rows});
  const Attrs norm = Attrs::Of(ops::NormAttrs{});
  const Attrs norm_back = Attrs::Of(ops::NormBackwardAttrs{});
  const Attrs gelu = Attrs::Of(ops::GeluAttrs{});
  std::vector<OpPoint> points = {
      Measure({ops::kRmsNorm, {&a, &weight}, {&b, &rstd}, norm}),
      Measure({ops::kRmsNormBackward, {&b, &a, &weight, &rstd}, {&c, &dweight, &partials},
               norm_back}),
      Measure({ops::kLayerNorm, {&a, &weight, &bias}, {&b, &mean, &rstd}, norm}),
      Measure({ops::kLayerNormBackward, {&b, &a, &weight, &mean, &rstd},
               {&c, &dweight, &dbias, &two_partials}, norm_back}),
      Measure({ops::kSiluGate, {&a, &b}, {&c}}),
      Measure({ops::kSiluGateBackward, {&a, &b, &c}, {&d, &c}}),
      Measure({ops::kGelu, {&a}, {&b}, gelu}),
      Measure({ops::kGeluBackward, {&a, &b}, {&c}, gelu}),
      Measure({ops::kAdd, {&a, &b}, {&c}}),
      Measure({ops::kAddInPlace, {&a, &b}, {&a}}),
      Measure({ops::kRotary, {&x, &cos, &sin}, {&y}, Attrs::Of(ops::RotaryAttrs{})}),
      Measure({ops::kEmbedding, {&targets, &b}, {&c}}),
      Measure({ops::kEmbeddingBackward, {&a, &targets}, {&c},
               Attrs::Of(ops::EmbeddingBackwardAttrs{})}),
      Measure({ops::kCrossEntropy, {&a, &targets, &count}, {&losses, &b},
               Attrs::Of(ops::CrossEntropyAttrs{})}),
      Measure({ops::kCopy, {&a}, {&wide}}),
      Measure({ops::kFill, {}, {&wide}, Attrs::Of(FillAttrs{})})};
  if (IsHalf(dtype)) points.push_back(Measure({ops::kCopy, {&wide}, {&a}}));
  return points;
}

std::vector<OpPoint> MeasureUpdate(Dtype dtype, int64_t parameters) {
  const Dims shape = {parameters};
  const Tensor grad(dtype, shape), step(Dtype::kI64, {1}), param(dtype, shape);
  const Tensor first(Dtype::kF32, shape), second(Dtype::kF32, shape), master(Dtype::kF32, shape);
  const Tensor squares(Dtype::kF32, {ops::SquaresPartials(parameters)});
  const Attrs adamw = Attrs::Of(ops::AdamwAttrs{});
  std::vector<OpPoint> points = {
      Measure({ops::kGradNormSquares, {&grad}, {&squares}}, kStepBytes)};
  if (IsHalf(dtype)) {
    points.push_back(
        Measure({ops::kAdamw, {&grad, &step}, {&param, &first, &second, &master}, adamw},
                             kStepBytes));
  } else {
    points.push_back(
        Measure({ops::kAdamw, {&grad, &step}, {&param, &first, &second}, adamw}, kStepBytes));
  }
  return points;
}

double MeasureBandwidth() {
  constexpr int64_t kFloats = 24 << 20;  // 96 MiB each
  std::vector<float> a(kFloats, 1), b(kFloats, 2), c(kFloats, 3);
  const double seconds = MedianSeconds([&] {
#pragma omp parallel for
    for (int64_t i = 0; i < kFloats; ++i) a[size_t(i)] = b[size_t(i)] + 0.5F * c[size_t(i)];
  }, 0.3);
  return 3.0 * kFloats * sizeof(float) / seconds;
}

double MeasureLeastOp() {
  const Tensor a(Dtype::kF32, {16}), b(Dtype::kF32, {16}), c(Dtype::kF32, {16});
  const Call call(ops::kAdd, {&a, &b}, {&c});
  constexpr int kCalls = 100;
  return MedianSeconds([&] {
    for (int i = 0; i < kCalls; ++i) call.Run();
  }) / kCalls;
}

}  // namespace hbmtune::device

#include "kernels/device/calibrate/measure_ops.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/core/float16.h"
#include "kernels/device/calibrate/stopwatch.h"
#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/add/add.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/silu_gate/silu_gate.h"

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
  double bytes() const { return cost().bytes_read + cost().bytes_written; }

 private:
  const OpKind& op_;
  std::vector<TensorArg> in_, out_;
  OpArgs args_;
};

}  // namespace

double MeasureProduct(Dtype dtype, int64_t m, int64_t n, int64_t k) {
  const Tensor x(dtype, {m, k}), w(dtype, {n, k}), y(dtype, {m, n});
  const Attrs attrs = Attrs::Of(ops::LinearAttrs{});
  const Call forward(ops::kLinear, {&x, &w}, {&y}, attrs);
  const Call input(ops::kLinearBackwardInput, {&y, &w}, {&x}, attrs);
  const Call weight(ops::kLinearBackwardWeight, {&y, &x}, {&w}, attrs);
  const double flops = forward.cost().flops + input.cost().flops + weight.cost().flops;
  return flops / (MedianSeconds([&] { forward.Run(); }) + MedianSeconds([&] { input.Run(); }) +
                  MedianSeconds([&] { weight.Run(); }));
}

double MeasureAttention(Dtype dtype, int64_t batch, int64_t tokens, int64_t heads,
                        int64_t width) {
  const Dims shape = {batch, tokens, heads, width}, rows = {batch, heads, tokens};
  const Tensor q(dtype, shape), k(dtype, shape), v(dtype, shape), o(dtype, shape);
  const Tensor dq(dtype, shape), dk(dtype, shape), dv(dtype, shape);
  const Tensor lse(Dtype::kF32, rows), delta(Dtype::kF32, rows);
  ops::AttentionAttrs settings;
  settings.scale = 1 / std::sqrt(double(width));
  const Attrs attrs = Attrs::Of(settings);
  const Call forward(ops::kAttentionTiled, {&q, &k, &v}, {&o, &lse}, attrs);
  const Call backward(ops::kAttentionTiledBackward, {&o, &q, &k, &v, &o, &lse},
                      {&dq, &dk, &dv, &delta}, attrs);
  return (forward.cost().flops + backward.cost().flops) /
         (MedianSeconds([&] { forward.Run(); }) + MedianSeconds([&] { backward.Run(); }));
}

double MeasureStreams(Dtype dtype, int64_t rows, int64_t width) {
  const Dims shape = {rows, width};
  const Tensor a(dtype, shape), b(dtype, shape), c(dtype, shape), d(dtype, shape);
  const Tensor weight(dtype, {width}), dweight(dtype, {width}), rstd(Dtype::kF32, {rows});
  const Tensor partials(Dtype::kF32, {ops::NormPartials(rows), width});
  const Tensor targets(Dtype::kI64, {rows}), count(Dtype::kF32, {1}), losses(Dtype::kF32, {rows});
  const Attrs norm = Attrs::Of(ops::NormAttrs{});
  const Attrs norm_back = Attrs::Of(ops::NormBackwardAttrs{});
  const Call calls[] = {
      {ops::kRmsNorm, {&a, &weight}, {&b, &rstd}, norm},
      {ops::kRmsNormBackward, {&b, &a, &weight, &rstd}, {&c, &dweight, &partials}, norm_back},
      {ops::kSiluGate, {&a, &b}, {&c}},
      {ops::kSiluGateBackward, {&a, &b, &c}, {&d, &c}},
      {ops::kAdd, {&a, &b}, {&c}},
      {ops::kCrossEntropy, {&a, &targets, &count}, {&losses, &b},
       Attrs::Of(ops::CrossEntropyAttrs{})}};
  double bytes = 0, seconds = 0;
  for (const Call& call : calls) {
    bytes += call.bytes();
    seconds += MedianSeconds([&] { call.Run(); });
  }
  return bytes / seconds;
}

OptimizerRate MeasureAdamw(int64_t parameters) {
  const Dims shape = {parameters};
  const Tensor grad(Dtype::kF32, shape), step(Dtype::kI64, {1});
  const Tensor param(Dtype::kF32, shape), first(Dtype::kF32, shape), second(Dtype::kF32, shape);
  const Call call(ops::kAdamw, {&grad, &step}, {&param, &first, &second},
                  Attrs::Of(ops::AdamwAttrs{}));
  const double seconds = MedianSeconds([&] { call.Run(); }, 0.2);
  return {call.bytes() / seconds, double(parameters) / seconds};
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

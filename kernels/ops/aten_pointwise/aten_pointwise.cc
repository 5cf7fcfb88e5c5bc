#include "kernels/ops/aten_pointwise/aten_pointwise.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/strided.h"

namespace hbmtune::ops {
namespace {

template <size_t kInputs>
void CheckArgs(const OpArgs& args) {
  if (args.in.size() != kInputs || args.out.size() != 1) {
    throw std::invalid_argument("aten pointwise: takes " + std::to_string(kInputs) +
                                " inputs and one output");
  }
  for (const TensorArg& input : args.in) {
    if (!Broadcasts(input.shape, args.out[0].shape)) {
      throw std::invalid_argument("aten pointwise: an input of shape " + ToString(input.shape) +
                                  " does not broadcast to " + ToString(args.out[0].shape));
    }
  }
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 1); }

// y = fn(a, b, scalar) at every element; b is 0 for unary ops.
template <class Fn>
void Loop(const OpArgs& args, Fn fn) {
  const TensorArg& y = args.out[0];
  const double scalar = args.attrs.As<AtenPointwiseAttrs>().scalar;
  const Dims a_strides = BroadcastStrides(args.in[0], y.shape);
  const bool binary = args.in.size() > 1;
  const Dims b_strides = binary ? BroadcastStrides(args.in[1], y.shape) : Dims{};
  ParallelBlocks(y.elements(), 4096, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double a = LoadScalar(args.in[0], OffsetOf(i, y.shape, a_strides));
      const double b = binary ? LoadScalar(args.in[1], OffsetOf(i, y.shape, b_strides)) : 0;
      StoreElement(y, fn(a, b, scalar), OffsetOf(i, y.shape, y.strides));
    }
  });
}

void Add(const OpArgs& args) {
  Loop(args, [](double a, double b, double) { return a + b; });
}
void Mul(const OpArgs& args) {
  Loop(args, [](double a, double b, double) { return a * b; });
}
void AddScalar(const OpArgs& args) {
  Loop(args, [](double a, double, double s) { return a + s; });
}
void MulScalar(const OpArgs& args) {
  Loop(args, [](double a, double, double s) { return a * s; });
}
void Neg(const OpArgs& args) {
  Loop(args, [](double a, double, double) { return -a; });
}
void Pow(const OpArgs& args) {
  Loop(args, [](double a, double, double s) { return std::pow(a, s); });
}
void Rsqrt(const OpArgs& args) {
  Loop(args, [](double a, double, double) { return 1 / std::sqrt(a); });
}
void Reciprocal(const OpArgs& args) {
  Loop(args, [](double a, double, double) { return 1 / a; });
}
void Cos(const OpArgs& args) {
  Loop(args, [](double a, double, double) { return std::cos(a); });
}
void Sin(const OpArgs& args) {
  Loop(args, [](double a, double, double) { return std::sin(a); });
}
void Tanh(const OpArgs& args) {
  Loop(args, [](double a, double, double) { return std::tanh(a); });
}
void TanhBackward(const OpArgs& args) {
  Loop(args, [](double a, double b, double) { return a * (1 - b * b); });
}
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
void Silu(const OpArgs& args) {
  Loop(args, [](double a, double, double) { return a * Sigmoid(a); });
}
void SiluBackward(const OpArgs& args) {
  Loop(args, [](double a, double b, double) {
    const double s = Sigmoid(b);
    return a * s * (1 + b * (1 - s));
  });
}
double Phi(double x) { return 0.5 * (1 + std::erf(x * M_SQRT1_2)); }
void Gelu(const OpArgs& args) {
  Loop(args, [](double a, double, double) { return a * Phi(a); });
}
void GeluBackward(const OpArgs& args) {
  Loop(args, [](double a, double b, double) {
    const double density = std::exp(-0.5 * b * b) * M_2_SQRTPI * M_SQRT1_2 * 0.5;
    return a * (Phi(b) + b * density);
  });
}
void ClampMax(const OpArgs& args) {
  Loop(args, [](double a, double, double s) { return std::min(a, s); });
}

}  // namespace

const OpKind kAtenAdd = {"aten_pointwise_add", CheckArgs<2>, CostOf, Add};
const OpKind kAtenMul = {"aten_pointwise_mul", CheckArgs<2>, CostOf, Mul};
const OpKind kAtenAddScalar = {"aten_pointwise_add_scalar", CheckArgs<1>, CostOf, AddScalar};
const OpKind kAtenMulScalar = {"aten_pointwise_mul_scalar", CheckArgs<1>, CostOf, MulScalar};
const OpKind kAtenNeg = {"aten_pointwise_neg", CheckArgs<1>, CostOf, Neg};
const OpKind kAtenPow = {"aten_pointwise_pow", CheckArgs<1>, CostOf, Pow};
const OpKind kAtenRsqrt = {"aten_pointwise_rsqrt", CheckArgs<1>, CostOf, Rsqrt};
const OpKind kAtenReciprocal = {"aten_pointwise_reciprocal", CheckArgs<1>, CostOf, Reciprocal};
const OpKind kAtenCos = {"aten_pointwise_cos", CheckArgs<1>, CostOf, Cos};
const OpKind kAtenSin = {"aten_pointwise_sin", CheckArgs<1>, CostOf, Sin};
const OpKind kAtenTanh = {"aten_pointwise_tanh", CheckArgs<1>, CostOf, Tanh};
const OpKind kAtenTanhBackward = {"aten_pointwise_tanh_backward", CheckArgs<2>, CostOf,
                                 TanhBackward};
const OpKind kAtenSilu = {"aten_pointwise_silu", CheckArgs<1>, CostOf, Silu};
const OpKind kAtenSiluBackward = {"aten_pointwise_silu_backward", CheckArgs<2>, CostOf,
                                 SiluBackward};
const OpKind kAtenGelu = {"aten_pointwise_gelu", CheckArgs<1>, CostOf, Gelu};
const OpKind kAtenGeluBackward = {"aten_pointwise_gelu_backward", CheckArgs<2>, CostOf,
                                 GeluBackward};
const OpKind kAtenClampMax = {"aten_pointwise_clamp_max", CheckArgs<1>, CostOf, ClampMax};

}  // namespace hbmtune::ops

#include "kernels/ops/gelu/gelu.h"

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/vector_math.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

void CheckForward(const OpArgs& args) {
  const Check check("gelu", args, {"x"}, {"y"});
  check.SameShape(check.out(0), check.in(0)).AllFloating().AllDense();
}

void CheckBackward(const OpArgs& args) {
  const Check check("gelu_backward", args, {"dy", "x"}, {"dx"});
  check.SameShape(check.in(1), check.in(0)).SameShape(check.out(0), check.in(0));
  check.AllFloating().AllDense();
}

Cost CostForward(const OpArgs& args) { return StreamCost(args, 10); }
Cost CostBackward(const OpArgs& args) { return StreamCost(args, 18); }

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;
constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

// Φ(x) and its derivative of either form; tanh form: Φ = (1 + tanh u) / 2, u = √(2/π)(x + c·x³).
template <class C>
struct ErfForm {
  static HBMTUNE_INLINE C Phi(C x) { return C(0.5) * (C(1) + Erf(x * C(kSqrtHalf))); }
  static HBMTUNE_INLINE C Slope(C x, C phi) {
    return phi + x * C(kInvSqrt2Pi) * Exp(C(-0.5) * x * x);
  }
};
template <class C>
struct TanhForm {
  static HBMTUNE_INLINE C Phi(C x) {
    return C(0.5) * (C(1) + Tanh(C(kSqrt2OverPi) * x * (C(1) + C(kCubic) * x * x)));
  }
  static HBMTUNE_INLINE C Slope(C x, C phi) {
    const C du = C(kSqrt2OverPi) * (C(1) + C(3 * kCubic) * x * x);
    return phi + C(2) * x * phi * (C(1) - phi) * du;
  }
};

template <class Form, class C>
HBMTUNE_INLINE void GeluBody(const C* x, C* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * Form::Phi(x[i]);
}
template <class Form, class C>
HBMTUNE_INLINE void GeluBackwardBody(const C* dy, const C* x, C* dx, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * Form::Slope(x[i], Form::Phi(x[i]));
}

HBMTUNE_VECTOR_CLONES void ErfGelu(const float* x, float* y, int64_t n) {
  GeluBody<ErfForm<float>>(x, y, n);
}
HBMTUNE_VECTOR_CLONES void ErfGelu(const double* x, double* y, int64_t n) {
  GeluBody<ErfForm<double>>(x, y, n);
}
HBMTUNE_VECTOR_CLONES void TanhGelu(const float* x, float* y, int64_t n) {
  GeluBody<TanhForm<float>>(x, y, n);
}
HBMTUNE_VECTOR_CLONES void TanhGelu(const double* x, double* y, int64_t n) {
  GeluBody<TanhForm<double>>(x, y, n);
}
HBMTUNE_VECTOR_CLONES void ErfBackward(const float* dy, const float* x, float* dx, int64_t n) {
  GeluBackwardBody<ErfForm<float>>(dy, x, dx, n);
}
HBMTUNE_VECTOR_CLONES void ErfBackward(const double* dy, const double* x, double* dx, int64_t n) {
  GeluBackwardBody<ErfForm<double>>(dy, x, dx, n);
}
HBMTUNE_VECTOR_CLONES void TanhBackward(const float* dy, const float* x, float* dx, int64_t n) {
  GeluBackwardBody<TanhForm<float>>(dy, x, dx, n);
}
HBMTUNE_VECTOR_CLONES void TanhBackward(const double* dy, const double* x, double* dx,
                                        int64_t n) {
  GeluBackwardBody<TanhForm<double>>(dy, x, dx, n);
}

template <class C>
void Forward(const OpArgs& args) {
  const bool tanh_form = args.attrs.As<GeluAttrs>().tanh_form != 0;
  const RowOperand<C> x(args.in[0], 0), y(args.out[0], 1);
  ParallelBlocks(args.in[0].elements(), kElementBlock, 1, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    const C* from = x.Read(begin, n);
    C* row = y.Write(begin, n);
    tanh_form ? TanhGelu(from, row, n) : ErfGelu(from, row, n);
    y.Commit(row, begin, n);
  });
}

template <class C>
void Backward(const OpArgs& args) {
  const bool tanh_form = args.attrs.As<GeluAttrs>().tanh_form != 0;
  const RowOperand<C> dy(args.in[0], 0), x(args.in[1], 1), dx(args.out[0], 2);
  ParallelBlocks(args.in[0].elements(), kElementBlock, 1, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    const C *grad = dy.Read(begin, n), *from = x.Read(begin, n);
    C* row = dx.Write(begin, n);
    tanh_form ? TanhBackward(grad, from, row, n) : ErfBackward(grad, from, row, n);
    dx.Commit(row, begin, n);
  });
}

void HostForward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Forward<decltype(c)>(args); });
}
void HostBackward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Backward<decltype(c)>(args); });
}

}  // namespace

const OpKind kGelu = {"gelu", CheckForward, CostForward, HostForward};
const OpKind kGeluBackward = {"gelu_backward", CheckBackward, CostBackward, HostBackward};

}  // namespace hbmtune::ops

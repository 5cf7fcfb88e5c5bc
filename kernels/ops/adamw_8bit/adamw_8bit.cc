#include "kernels/ops/adamw_8bit/adamw_8bit.h"

#include <cmath>

#include "kernels/ops/adamw_8bit/dynamic_code.h"
#include "kernels/ops/support/check.h"
#include "kernels/ops/support/control.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("adamw_8bit", args, {"grad", "step", "control?"},
                    {"param", "exp_avg", "exp_avg_sq", "exp_avg_scale", "exp_avg_sq_scale",
                     "master?"});
  const TensorArg& grad = check.in(0);
  const int64_t elements = grad.elements();
  check.Floating(grad).AllDense().Dtype(check.in(1), Dtype::kI64);
  check.Elements(check.in(1), 1, grad);
  if (check.has_in(2)) check.Elements(check.in(2), kControlSize, grad).Floating(check.in(2));
  check.Floating(check.out(0)).Elements(check.out(0), elements, grad);
  for (size_t i : {1, 2}) {
    check.Dtype(check.out(i), Dtype::kU8).Elements(check.out(i), elements, grad);
  }
  for (size_t i : {3, 4}) {
    check.Dtype(check.out(i), Dtype::kF32);
    check.Elements(check.out(i), Adamw8bitBlocks(elements), grad);
  }
  if (check.has_out(5)) check.Floating(check.out(5)).Elements(check.out(5), elements, grad);
}

Cost CostOf(const OpArgs& args) {
  Cost cost = StreamCost(args, 40, CostClass::kOptimizer);
  cost.bytes_read += cost.bytes_written;
  return cost;
}

struct Moments {
  float exp_avg[kAdamw8bitBlock];
  float exp_avg_sq[kAdamw8bitBlock];
};

template <class C>
HBMTUNE_INLINE void StepBody(const C* grad, AdamwFactors<C> f, C* param, Moments& moments,
                             int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C g = grad[i] * f.grad;
    const C m = f.beta1 * moments.exp_avg[i] + f.share1 * g;
    const C v = f.beta2 * moments.exp_avg_sq[i] + f.share2 * g * g;
    param[i] = param[i] * f.decay -
               f.step_size * m / (std::sqrt(v) * f.inv_sqrt_correction2 + f.eps);
    moments.exp_avg[i] = static_cast<float>(m);
    moments.exp_avg_sq[i] = static_cast<float>(v);
  }
}
HBMTUNE_VECTOR_CLONES void Step(const float* grad, AdamwFactors<float> f, float* param,
                                Moments& moments, int64_t n) {
  StepBody(grad, f, param, moments, n);
}
HBMTUNE_VECTOR_CLONES void Step(const double* grad, AdamwFactors<double> f, double* param,
                                Moments& moments, int64_t n) {
  StepBody(grad, f, param, moments, n);
}

template <class C>
void Adamw8bit(const OpArgs& args, const StepControl& control) {
  const auto factors = AdamwFactors<C>::Of(args.attrs.As<AdamwAttrs>(), control.coefficient,
                                           LoadScalar(args.in[1]));
  const bool has_master = args.out.size() > 5;
  const RowOperand<C> grad(args.in[0], 0), master(args.out[has_master ? 5 : 0], 1);
  auto* codes = args.out[1].as<uint8_t>();
  auto* codes_sq = args.out[2].as<uint8_t>();
  auto* scales = args.out[3].as<float>();
  auto* scales_sq = args.out[4].as<float>();
  ParallelBlocks(args.in[0].elements(), kAdamw8bitBlock, 1, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin, block = begin / kAdamw8bitBlock;
    Moments moments;
    SignedCode().Decode(codes + begin, scales[block], moments.exp_avg, n);
    UnsignedCode().Decode(codes_sq + begin, scales_sq[block], moments.exp_avg_sq, n);
    C* param = master.Update(begin, n);
    Step(grad.Read(begin, n), factors, param, moments, n);
    scales[block] = SignedCode().Encode(moments.exp_avg, codes + begin, n);
    scales_sq[block] = UnsignedCode().Encode(moments.exp_avg_sq, codes_sq + begin, n);
    master.Commit(param, begin, n);
    if (has_master) WriteElements(param, ElementAt(args.out[0], begin), args.out[0].dtype, n);
  });
}

void Host(const OpArgs& args) {
  const StepControl control = ControlOf(args, 2);
  if (control.skip) return;
  WithArithmetic(args, [&](auto c) { Adamw8bit<decltype(c)>(args, control); });
}

}  // namespace

const OpKind kAdamw8bit = {"adamw_8bit", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops

#include "kernels/ops/adamw/adamw.h"

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/control.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("adamw", args, {"grad", "step", "control?"},
                    {"param", "exp_avg", "exp_avg_sq", "master?"});
  const TensorArg& grad = check.in(0);
  check.Floating(grad).AllDense().Dtype(check.in(1), Dtype::kI64);
  check.Elements(check.in(1), 1, grad);
  if (check.has_in(2)) check.Elements(check.in(2), kControlSize, grad).Floating(check.in(2));
  for (const TensorArg& out : args.out) check.Elements(out, grad.elements(), grad).Floating(out);
}

// All outputs are read too.
Cost CostOf(const OpArgs& args) {
  Cost cost = StreamCost(args, 12, CostClass::kOptimizer);
  cost.bytes_read += cost.bytes_written;
  if (args.out.size() > 3) cost.bytes_read -= static_cast<double>(args.out[0].bytes());
  return cost;
}

template <class C>
struct AdamwRow {
  const C* grad;
  C *param, *exp_avg, *exp_avg_sq;
};

template <class C>
HBMTUNE_INLINE void StepBody(AdamwRow<C> row, AdamwFactors<C> f, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C g = row.grad[i] * f.grad;
    const C m = row.exp_avg[i] + f.share1 * (g - row.exp_avg[i]);
    const C v = f.beta2 * row.exp_avg_sq[i] + f.share2 * g * g;
    const C denominator = std::sqrt(v) * f.inv_sqrt_correction2 + f.eps;
    row.param[i] = row.param[i] * f.decay - f.step_size * m / denominator;
    row.exp_avg[i] = m;
    row.exp_avg_sq[i] = v;
  }
}
HBMTUNE_VECTOR_CLONES void Step(AdamwRow<float> row, AdamwFactors<float> f,
                                int64_t n) {
  StepBody(row, f, n);
}
HBMTUNE_VECTOR_CLONES void Step(AdamwRow<double> row, AdamwFactors<double> f,
                                int64_t n) {
  StepBody(row, f, n);
}

template <class C>
void Adamw(const OpArgs& args, const StepControl& control) {
  const auto factors = AdamwFactors<C>::Of(args.attrs.As<AdamwAttrs>(), control.coefficient,
                                           LoadScalar(args.in[1]));
  const bool has_master = args.out.size() > 3;
  const RowOperand<C> grad(args.in[0], 0), exp_avg(args.out[1], 1);
  const RowOperand<C> exp_avg_sq(args.out[2], 2), master(args.out[has_master ? 3 : 0], 3);
  ParallelBlocks(args.in[0].elements(), kElementBlock, 1, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    const AdamwRow<C> row = {grad.Read(begin, n), master.Update(begin, n),
                             exp_avg.Update(begin, n), exp_avg_sq.Update(begin, n)};
    Step(row, factors, n);
    exp_avg.Commit(row.exp_avg, begin, n);
    exp_avg_sq.Commit(row.exp_avg_sq, begin, n);
    master.Commit(row.param, begin, n);
    if (has_master) WriteElements(row.param, ElementAt(args.out[0], begin), args.out[0].dtype, n);
  });
}

void Host(const OpArgs& args) {
  const StepControl control = ControlOf(args, 2);
  if (control.skip) return;
  WithArithmetic(args, [&](auto c) { Adamw<decltype(c)>(args, control); });
}

}  // namespace

const OpKind kAdamw = {"adamw", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops

#include "kernels/ops/sgd/sgd.h"

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/control.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

void CheckNamed(const OpArgs& args, std::initializer_list<std::string_view> outputs) {
  const Check check("sgd", args, {"grad", "control?"}, outputs);
  const TensorArg& grad = check.in(0);
  check.AllFloating().AllDense();
  if (check.has_in(1)) check.Elements(check.in(1), kControlSize, grad);
  for (const TensorArg& out : args.out) check.Elements(out, grad.elements(), grad);
}

void CheckArgs(const OpArgs& args) {
  if (args.attrs.As<SgdAttrs>().momentum > 0) {
    CheckNamed(args, {"param", "momentum", "master?"});
  } else {
    CheckNamed(args, {"param", "master?"});
  }
}

Cost CostOf(const OpArgs& args) {
  Cost cost = StreamCost(args, 6, CostClass::kOptimizer);
  cost.bytes_read += cost.bytes_written;
  return cost;
}

template <class C>
struct SgdFactors {
  C grad, momentum, decay, lr;
};
template <class C>
struct SgdRow {
  const C* grad;
  C *param, *momentum;  // momentum: scratch of zeros when there is none
};

template <class C>
HBMTUNE_INLINE void StepBody(SgdRow<C> row, SgdFactors<C> f, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C g = row.grad[i] * f.grad + f.decay * row.param[i];
    const C m = f.momentum * row.momentum[i] + g;
    row.momentum[i] = m;
    row.param[i] -= f.lr * m;
  }
}
HBMTUNE_VECTOR_CLONES void Step(SgdRow<float> row, SgdFactors<float> f, int64_t n) {
  StepBody(row, f, n);
}
HBMTUNE_VECTOR_CLONES void Step(SgdRow<double> row, SgdFactors<double> f,
                                int64_t n) {
  StepBody(row, f, n);
}

template <class C>
void Sgd(const OpArgs& args, const StepControl& control) {
  const auto attrs = args.attrs.As<SgdAttrs>();
  const SgdFactors<C> factors = {static_cast<C>(control.coefficient),
                                 static_cast<C>(attrs.momentum),
                                 static_cast<C>(attrs.weight_decay), static_cast<C>(attrs.lr)};
  const size_t momentum_index = attrs.momentum > 0 ? 1 : 0;
  const bool has_master = args.out.size() > momentum_index + 1;
  const RowOperand<C> grad(args.in[0], 0), momentum(args.out[momentum_index], 1);
  const RowOperand<C> master(args.out[has_master ? momentum_index + 1 : 0], 2);
  ParallelBlocks(args.in[0].elements(), kElementBlock, 1, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    C none[kElementBlock];
    if (momentum_index == 0) std::fill_n(none, n, C(0));
    const SgdRow<C> row = {grad.Read(begin, n), master.Update(begin, n),
                           momentum_index == 0 ? none : momentum.Update(begin, n)};
    Step(row, factors, n);
    if (momentum_index > 0) momentum.Commit(row.momentum, begin, n);
    master.Commit(row.param, begin, n);
    if (has_master) WriteElements(row.param, ElementAt(args.out[0], begin), args.out[0].dtype, n);
  });
}

void Host(const OpArgs& args) {
  const StepControl control = ControlOf(args, 1);
  if (control.skip) return;
  WithArithmetic(args, [&](auto c) { Sgd<decltype(c)>(args, control); });
}

}  // namespace

const OpKind kSgd = {"sgd", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops

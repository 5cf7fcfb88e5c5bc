#include "kernels/ops/grad_norm/grad_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

void CheckSquares(const OpArgs& args) {
  const Check check("grad_norm_squares", args, {"x"}, {"partials"});
  check.AllFloating().AllDense().Statistic(check.out(0));
  check.Elements(check.out(0), SquaresPartials(check.in(0).elements()), check.in(0));
}

void CheckNorm(const OpArgs& args) {
  const Check check("grad_norm", args, {"partials", "loss_scale?"}, {"control"});
  check.AllFloating().AllDense().Shape(check.out(0), {kControlSize}, check.in(0));
  if (check.has_in(1)) check.Elements(check.in(1), 1, check.in(0));
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 2, CostClass::kReduction); }

template <class C>
void Squares(const OpArgs& args) {
  const RowOperand<C> x(args.in[0], 0);
  C* partials = args.out[0].as<C>();
  ParallelBlocks(args.in[0].elements(), kSquaresBlock, 1, [&](int64_t begin, int64_t end) {
    C sum = 0;
    for (int64_t at = begin; at < end; at += kElementBlock) {
      const int64_t n = std::min(kElementBlock, end - at);
      const C* row = x.Read(at, n);
      sum += DotRow(row, row, n);
    }
    partials[begin / kSquaresBlock] = sum;
  });
}

void HostSquares(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Squares<decltype(c)>(args); });
}

void HostNorm(const OpArgs& args) {
  const double max_norm = args.attrs.As<GradNormAttrs>().max_norm;
  const double loss_scale = args.in.size() > 1 ? LoadScalar(args.in[1]) : 1.0;
  double sum = 0;
  for (int64_t i = 0; i < args.in[0].elements(); ++i) sum += LoadScalar(args.in[0], i);
  const double norm = std::sqrt(sum) / loss_scale;
  const double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  StoreScalar(args.out[0], norm, kControlNorm);
  StoreScalar(args.out[0], clip / loss_scale, kControlCoefficient);
  StoreScalar(args.out[0], std::isfinite(norm) ? 0.0 : 1.0, kControlFoundInf);
}

}  // namespace

const OpKind kGradNormSquares = {"grad_norm_squares", CheckSquares, CostOf, HostSquares};
const OpKind kGradNorm = {"grad_norm", CheckNorm, CostOf, HostNorm};

}  // namespace hbmtune::ops

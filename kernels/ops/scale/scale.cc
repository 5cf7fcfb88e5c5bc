#include "kernels/ops/scale/scale.h"

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("scale", args, {"x", "s?"}, {"y"});
  check.SameShape(check.out(0), check.in(0)).AllFloating().AllDense();
  if (check.has_in(1)) check.Elements(check.in(1), 1, check.in(0));
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 1); }

template <class C>
void Scale(const OpArgs& args) {
  double factor = args.attrs.As<ScaleAttrs>().factor;
  if (args.in.size() > 1) factor *= LoadScalar(args.in[1]);
  const RowOperand<C> x(args.in[0], 0), y(args.out[0], 1);
  ParallelBlocks(args.in[0].elements(), kElementBlock, 1, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    C* row = y.Write(begin, n);
    ScaleRow(x.Read(begin, n), static_cast<C>(factor), row, n);
    y.Commit(row, begin, n);
  });
}

void Host(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Scale<decltype(c)>(args); });
}

}  // namespace

const OpKind kScale = {"scale", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops

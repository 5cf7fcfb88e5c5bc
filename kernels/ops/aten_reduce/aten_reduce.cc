#include "kernels/ops/aten_reduce/aten_reduce.h"

#include <cmath>
#include <stdexcept>
#include <vector>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/strided.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("aten_reduce_sum", args, {"x"}, {"y"});
  check.That(Broadcasts(args.out[0].shape, args.in[0].shape),
             "y of shape " + ToString(args.out[0].shape) + " is no reduction of x " +
                 ToString(args.in[0].shape));
}

Cost CostOf(const OpArgs& args) {
  return StreamCost(args, 1, CostClass::kReduction);
}

// Σ fn(x) for each element of y, then y = finish(sum).
template <class Fn, class Finish>
void Reduce(const OpArgs& args, Fn fn, Finish finish) {
  const TensorArg& x = args.in[0];
  const TensorArg& y = args.out[0];
  const Dims positions = BroadcastStrides(
      TensorArg{nullptr, y.dtype, y.shape, DenseStrides(y.shape)}, x.shape);
  std::vector<double> sums(static_cast<size_t>(y.elements()), 0.0);
  for (int64_t i = 0; i < x.elements(); ++i) {
    sums[static_cast<size_t>(OffsetOf(i, x.shape, positions))] +=
        fn(LoadScalar(x, OffsetOf(i, x.shape, x.strides)));
  }
  for (int64_t i = 0; i < y.elements(); ++i) {
    StoreScalar(y, finish(sums[static_cast<size_t>(i)]), OffsetOf(i, y.shape, y.strides));
  }
}

void Sum(const OpArgs& args) {
  const double factor = args.attrs.As<AtenSumAttrs>().factor;
  Reduce(args, [](double x) { return x; }, [factor](double sum) { return factor * sum; });
}

void Norm(const OpArgs& args) {
  Reduce(args, [](double x) { return x * x; }, [](double sum) { return std::sqrt(sum); });
}

}  // namespace

const OpKind kAtenSum = {"aten_reduce_sum", CheckArgs, CostOf, Sum};
const OpKind kAtenNorm = {"aten_reduce_norm", CheckArgs, CostOf, Norm};

}  // namespace hbmtune::ops

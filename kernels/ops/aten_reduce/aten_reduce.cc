#include "kernels/ops/aten_reduce/aten_reduce.h"

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

void Host(const OpArgs& args) {
  const TensorArg& x = args.in[0];
  const TensorArg& y = args.out[0];
  const Dims positions = BroadcastStrides(
      TensorArg{nullptr, y.dtype, y.shape, DenseStrides(y.shape)}, x.shape);
  std::vector<double> sums(static_cast<size_t>(y.elements()), 0.0);
  for (int64_t i = 0; i < x.elements(); ++i) {
    sums[static_cast<size_t>(OffsetOf(i, x.shape, positions))] +=
        LoadScalar(x, OffsetOf(i, x.shape, x.strides));
  }
  const double factor = args.attrs.As<AtenSumAttrs>().factor;
  for (int64_t i = 0; i < y.elements(); ++i) {
    StoreScalar(y, factor * sums[static_cast<size_t>(i)], OffsetOf(i, y.shape, y.strides));
  }
}

}  // namespace

const OpKind kAtenSum = {"aten_reduce_sum", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops

#include "kernels/ops/aten_softmax/aten_softmax.h"

#include <cmath>
#include <limits>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

void CheckForward(const OpArgs& args) {
  const Check check("aten_softmax", args, {"x"}, {"y"});
  check.MinRank(check.in(0), 1).SameShape(check.out(0), check.in(0)).AllDense();
}

void CheckBackward(const OpArgs& args) {
  const Check check("aten_softmax_backward", args, {"dy", "y"}, {"dx"});
  check.MinRank(check.in(0), 1).SameShape(check.in(1), check.in(0));
  check.SameShape(check.out(0), check.in(0)).AllDense();
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 4, CostClass::kReduction); }

template <bool kLog>
void Forward(const OpArgs& args) {
  const TensorArg& x = args.in[0];
  const int64_t width = x.shape.back();
  ParallelFor(x.elements() / width, width, [&](int64_t row) {
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) top = std::max(top, LoadScalar(x, i));
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      sum += std::exp(LoadScalar(x, i) - top);
    }
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      const double shifted = LoadScalar(x, i) - top;
      StoreScalar(args.out[0], kLog ? shifted - std::log(sum) : std::exp(shifted) / sum, i);
    }
  });
}

template <bool kLog>
void Backward(const OpArgs& args) {
  const TensorArg& dy = args.in[0];
  const TensorArg& y = args.in[1];
  const int64_t width = dy.shape.back();
  ParallelFor(dy.elements() / width, width, [&](int64_t row) {
    double sum = 0;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      sum += LoadScalar(dy, i) * (kLog ? 1 : LoadScalar(y, i));
    }
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      const double d = LoadScalar(dy, i), v = LoadScalar(y, i);
      StoreScalar(args.out[0], kLog ? d - std::exp(v) * sum : v * (d - sum), i);
    }
  });
}

}  // namespace

const OpKind kAtenSoftmax = {"aten_softmax", CheckForward, CostOf, Forward<false>};
const OpKind kAtenLogSoftmax = {"aten_softmax_log", CheckForward, CostOf, Forward<true>};
const OpKind kAtenSoftmaxBackward = {"aten_softmax_backward", CheckBackward, CostOf,
                                     Backward<false>};
const OpKind kAtenLogSoftmaxBackward = {"aten_softmax_log_backward", CheckBackward, CostOf,
                                        Backward<true>};

}  // namespace hbmtune::ops

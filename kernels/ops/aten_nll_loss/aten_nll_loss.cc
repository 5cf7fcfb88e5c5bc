#include "kernels/ops/aten_nll_loss/aten_nll_loss.h"

#include <stdexcept>
#include <string>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

void CheckForward(const OpArgs& args) {
  const Check check("aten_nll_loss", args, {"log_probabilities", "targets"},
                    {"loss", "total_weight"});
  check.Rank(check.in(0), 2).Dtype(check.in(1), Dtype::kI64).AllDense();
  check.Elements(check.in(1), check.in(0).shape[0], check.in(0));
}

void CheckBackward(const OpArgs& args) {
  const Check check("aten_nll_loss_backward", args, {"dy", "targets", "total_weight"},
                    {"dlog_probabilities"});
  check.Rank(check.out(0), 2).Dtype(check.in(1), Dtype::kI64).AllDense();
  check.Elements(check.in(1), check.out(0).shape[0], check.out(0));
}

Cost ForwardCost(const OpArgs& args) {
  Cost cost;
  cost.bytes_read = static_cast<double>(args.in[1].bytes() + args.in[1].elements() * 32);
  cost.kind = CostClass::kReduction;
  return cost;
}

Cost BackwardCost(const OpArgs& args) { return StreamCost(args, 0); }

int64_t TargetOf(const TensorArg& targets, int64_t row, int64_t classes, int64_t ignored) {
  const int64_t target = targets.as<int64_t>()[row];
  if (target != ignored && (target < 0 || target >= classes)) {
    throw std::invalid_argument("aten_nll_loss: target " + std::to_string(target) +
                                " is outside the vocabulary of " + std::to_string(classes));
  }
  return target;
}

void Forward(const OpArgs& args) {
  const int64_t ignored = args.attrs.As<AtenNllLossAttrs>().ignore_index;
  const int64_t rows = args.in[0].shape[0], classes = args.in[0].shape[1];
  double sum = 0, count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t target = TargetOf(args.in[1], row, classes, ignored);
    if (target == ignored) continue;
    sum -= LoadScalar(args.in[0], row * classes + target);
    count += 1;
  }
  StoreScalar(args.out[0], sum / count);
  StoreScalar(args.out[1], count);
}

void Backward(const OpArgs& args) {
  const int64_t ignored = args.attrs.As<AtenNllLossAttrs>().ignore_index;
  const TensorArg& dx = args.out[0];
  const int64_t rows = dx.shape[0], classes = dx.shape[1];
  const double value = -LoadScalar(args.in[0]) / LoadScalar(args.in[2]);
  for (int64_t i = 0; i < rows * classes; ++i) StoreScalar(dx, 0, i);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t target = TargetOf(args.in[1], row, classes, ignored);
    if (target != ignored) StoreScalar(dx, value, row * classes + target);
  }
}

}  // namespace

const OpKind kAtenNllLoss = {"aten_nll_loss", CheckForward, ForwardCost, Forward};
const OpKind kAtenNllLossBackward = {"aten_nll_loss_backward", CheckBackward, BackwardCost,
                                     Backward};

}  // namespace hbmtune::ops

#include "kernels/ops/labels/labels.h"

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("labels", args, {"labels"}, {"targets", "count"});
  const TensorArg& labels = check.in(0);
  check.AllDense().Rank(labels, 2).Dtype(labels, Dtype::kI64);
  check.SameShape(check.out(0), labels).Dtype(check.out(0), Dtype::kI64);
  check.Floating(check.out(1)).Shape(check.out(1), {1}, labels);
  check.That(labels.data == nullptr || labels.data != check.out(0).data,
             "targets may not be labels");
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 1); }

void Host(const OpArgs& args) {
  const int64_t ignore = args.attrs.As<LabelsAttrs>().ignore_index;
  const int64_t batch = args.in[0].shape[0], length = args.in[0].shape[1];
  const int64_t* labels = args.in[0].as<int64_t>();
  int64_t* targets = args.out[0].as<int64_t>();
  int64_t count = 0;
  for (int64_t i = 0; i < batch * length; ++i) {
    targets[i] = (i + 1) % length == 0 ? ignore : labels[i + 1];
    count += targets[i] != ignore;
  }
  StoreScalar(args.out[1], static_cast<double>(count));
}

}  // namespace

const OpKind kLabels = {"labels", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops

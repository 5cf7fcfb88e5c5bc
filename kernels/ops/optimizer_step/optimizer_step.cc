#include "kernels/ops/optimizer_step/optimizer_step.h"

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/control.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("optimizer_step", args, {"control?"}, {"step"});
  check.Dtype(check.out(0), Dtype::kI64).Elements(check.out(0), 1, check.out(0));
  if (check.has_in(0)) {
    check.Floating(check.in(0)).Elements(check.in(0), kControlSize, check.out(0));
  }
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 1); }

void Host(const OpArgs& args) {
  if (!ControlOf(args, 0).skip) *args.out[0].as<int64_t>() += 1;
}

}  // namespace

const OpKind kOptimizerStep = {"optimizer_step", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops

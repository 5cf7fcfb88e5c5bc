#include "kernels/ops/loss_scale/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/control.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("loss_scale", args, {"control"}, {"scale", "trackers"});
  check.Floating(check.in(0)).Elements(check.in(0), kControlSize, check.in(0)).AllDense();
  check.Dtype(check.out(0), Dtype::kF32).Elements(check.out(0), 1, check.in(0));
  check.Dtype(check.out(1), Dtype::kI64).Shape(check.out(1), {2}, check.in(0));
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 1); }

void Host(const OpArgs& args) {
  const auto attrs = args.attrs.As<LossScaleAttrs>();
  float& scale = *args.out[0].as<float>();
  int64_t& good_steps = args.out[1].as<int64_t>()[0];
  int64_t& hysteresis_left = args.out[1].as<int64_t>()[1];
  if (ControlOf(args, 0).skip) {
    good_steps = 0;
    if (hysteresis_left > 0) --hysteresis_left;
    if (hysteresis_left == 0) scale = std::max(scale / 2, static_cast<float>(attrs.min));
    return;
  }
  if (++good_steps < attrs.window) return;
  if (std::isfinite(scale * 2)) scale *= 2;
  good_steps = 0;
  hysteresis_left = attrs.hysteresis;
}

}  // namespace

const OpKind kLossScale = {"loss_scale", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops

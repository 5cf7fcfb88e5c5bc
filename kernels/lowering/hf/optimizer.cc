#include "kernels/lowering/hf/trainer.h"
#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/aten_reduce/aten_reduce.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/optimizer_step/optimizer_step.h"

namespace hbmtune::lowering {

HfAdamw::HfAdamw(Aten& aten, const TrainConfig& config, const HfOptions& options,
                 std::vector<HfParameter>& parameters)
    : aten_(aten), config_(config), settings_(options.optimizer) {
  groups_.resize(options.trainer_groups ? 2 : 1);
  groups_[0].weight_decay = settings_.weight_decay;
  for (HfParameter& parameter : parameters) {
    if (!parameter.trained) continue;
    const bool apart = options.trainer_groups && !parameter.decayed;
    groups_[apart ? 1 : 0].parameters.push_back(&parameter);
    declared_.push_back(&parameter);
  }
  for (const Group& group : groups_) {
    order_.insert(order_.end(), group.parameters.begin(), group.parameters.end());
  }
  count_ = aten_.HostState(Dtype::kI64, {1});
}

// States appear at the first step, all of a group before its arithmetic.
void HfAdamw::MakeStates(const Group& group) {
  aten_.set_category(Category::kOptimizer);
  for (HfParameter* parameter : group.parameters) {
    if (states_.contains(parameter->name)) continue;
    State& state = states_[parameter->name];
    const Tensor& p = parameter->tensor;
    if (config_.optimizer_loop == OptimizerLoop::kFused) {
      state.step = aten_.Full(Dtype::kF32, {}, 0);
    }
    state.exp_avg = aten_.Full(p.dtype(), p.shape(), 0);
    state.exp_avg_sq = aten_.Full(p.dtype(), p.shape(), 0);
    aten_.tape().NameState(parameter->name + ".exp_avg", state.exp_avg);
    aten_.tape().NameState(parameter->name + ".exp_avg_sq", state.exp_avg_sq);
  }
  aten_.set_category(Category::kActivations);
}

void HfAdamw::Update(const Group& group, HfParameter& parameter) {
  ops::AdamwAttrs attrs;
  attrs.lr = settings_.lr;
  attrs.beta1 = settings_.beta1;
  attrs.beta2 = settings_.beta2;
  attrs.eps = settings_.eps;
  attrs.weight_decay = group.weight_decay;
  State& state = states_[parameter.name];
  aten_.tape().Run(ops::kAdamw, {parameter.tensor.grad(), count_},
                   {parameter.tensor, state.exp_avg, state.exp_avg_sq}, Attrs::Of(attrs));
}

void HfAdamw::StepGroup(const Group& group) {
  MakeStates(group);
  aten_.set_category(Category::kStaging);
  std::vector<Tensor> roots;  // foreach: √ of every second moment at once
  Tensor quotient;            // for-loop: √(v)/bias, alive until the next one
  for (HfParameter* parameter : group.parameters) {
    const Tensor& v = states_[parameter->name].exp_avg_sq;
    if (config_.optimizer_loop == OptimizerLoop::kForeach) {
      roots.push_back(aten_.Scratch(v.dtype(), v.shape()));
    } else if (config_.optimizer_loop == OptimizerLoop::kForLoop) {
      Tensor root = aten_.Scratch(v.dtype(), v.shape());
      Tensor next = aten_.Scratch(v.dtype(), v.shape());
      root = {};
      quotient = std::move(next);
    }
    Update(group, *parameter);
  }
  quotient = {};
  while (!roots.empty()) roots.pop_back();
  aten_.set_category(Category::kActivations);
}

void HfAdamw::Step() {
  aten_.tape().Run(ops::kOptimizerStep, {}, {count_});
  for (const Group& group : groups_) {
    if (!group.parameters.empty()) StepGroup(group);
  }
}

void HfAdamw::ZeroGrad() {
  for (HfParameter* parameter : order_) parameter->tensor.set_grad({});
}

namespace {

// √Σx² over all elements, into a scalar of x's dtype.
void Norm(Aten& aten, const Tensor& x, const Tensor& out) {
  Dims ones = x.shape();
  for (size_t d = 0; d < ones.rank(); ++d) ones[d] = 1;
  aten.tape().Run(ops::kAtenNorm, {x}, {aten.tape().ViewOf(out, ones, DenseStrides(ones))});
}

}  // namespace

void ClipGradNorm(Aten& aten, const std::vector<HfParameter*>& parameters, double max_norm) {
  if (parameters.empty()) return;
  aten.set_category(Category::kStaging);
  const int64_t count = static_cast<int64_t>(parameters.size());
  const Dtype dtype = parameters[0]->tensor.dtype();
  int64_t chunks = 0;
  for (const HfParameter* p : parameters) {
    chunks += (p->tensor.elements() + 65535) / 65536;
  }
  Tensor addresses = aten.Scratch(Dtype::kI64, {count + 1});
  Tensor partials = aten.Scratch(Dtype::kF32, {chunks});
  std::vector<Tensor> norms;
  for (const HfParameter* p : parameters) {
    norms.push_back(aten.New(dtype, {}));
    Norm(aten, p->tensor.grad(), norms.back());
  }
  partials = {};
  addresses = {};
  Tensor stacked = aten.New(dtype, {count});
  for (int64_t i = 0; i < count; ++i) {
    aten.tape().Run(ops::kCopy, {norms[i]}, {aten.tape().ViewOf(stacked, {}, {}, i)});
  }
  Tensor total = aten.New(dtype, {});
  Norm(aten, stacked, total);
  stacked = {};
  while (!norms.empty()) norms.pop_back();
  Tensor shifted = aten.AddScalar(total, 1e-6);
  Tensor inverse = aten.Map(ops::kAtenReciprocal, shifted);
  Tensor coefficient = aten.MulScalar(inverse, max_norm);
  inverse = {};
  shifted = {};
  Tensor clamped = aten.New(dtype, {});
  aten.tape().Run(ops::kAtenClampMax, {coefficient}, {clamped},
                  Attrs::Of(ops::AtenPointwiseAttrs{1}));
  coefficient = {};
  for (const HfParameter* p : parameters) {
    aten.tape().Run(ops::kAtenMul, {p->tensor.grad(), clamped}, {p->tensor.grad()});
  }
  aten.tape().ReadScalar(total, ScalarSlot::kGradNorm);
  clamped = {};
  total = {};
  aten.set_category(Category::kActivations);
}

Tensor HfGradScaler::Scale(Tensor loss) {
  if (!scale_) {
    scale_ = aten_.Full(Dtype::kF32, {1}, kScale);
    growth_tracker_ = aten_.Scratch(Dtype::kI32, {1});
  }
  return aten_.MulScalar(loss, kScale);
}

// The fused optimizer divides by the scale itself: it is handed flag and scale, both made anew.
void HfGradScaler::PrepareFused(const std::vector<HfParameter*>& parameters) {
  const bool unscaled = static_cast<bool>(found_inf_);
  if (!unscaled) {
    Tensor scale = aten_.Scratch(Dtype::kF32, {1});
    Tensor found = aten_.Scratch(Dtype::kF32, {1});
    found_inf_ = aten_.Scratch(Dtype::kF32, {1});
    Tensor on_device = aten_.Scratch(Dtype::kF32, {1});
    on_device = {};
    scale = {};
    found = {};
    Divide(parameters);
  }
  fused_flag_ = aten_.Scratch(Dtype::kF32, {1});
  if (!unscaled) fused_scale_ = aten_.Scratch(Dtype::kF32, {1});
}

void HfGradScaler::Update() {
  fused_scale_ = {};
  fused_flag_ = {};
  found_inf_ = {};
}

void HfGradScaler::Divide(const std::vector<HfParameter*>& parameters) {
  for (const HfParameter* p : parameters) {
    aten_.tape().Run(ops::kAtenMulScalar, {p->tensor.grad()}, {p->tensor.grad()},
                     Attrs::Of(ops::AtenPointwiseAttrs{1 / kScale}));
  }
}

void HfGradScaler::Unscale(const std::vector<HfParameter*>& parameters) {
  Tensor wide = aten_.Scratch(Dtype::kF64, {1});
  Tensor reciprocal = aten_.Scratch(Dtype::kF64, {1});
  wide = {};
  Tensor inverse = aten_.Full(Dtype::kF32, {1}, 1 / kScale);
  reciprocal = {};
  Tensor found = aten_.Scratch(Dtype::kF32, {1});
  found_inf_ = aten_.Scratch(Dtype::kF32, {1});
  { Tensor inverse_on_device = aten_.Scratch(Dtype::kF32, {1}); }
  Divide(parameters);
  inverse = {};
  found = {};
  aten_.tape().ReadScalar(found_inf_, ScalarSlot::kFoundInf);
}

}  // namespace hbmtune::lowering

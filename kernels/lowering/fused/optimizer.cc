#include "kernels/lowering/fused/optimizer.h"

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/adamw_8bit/adamw_8bit.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/ops/grad_norm/grad_norm.h"
#include "kernels/ops/loss_scale/loss_scale.h"
#include "kernels/ops/optimizer_step/optimizer_step.h"
#include "kernels/ops/sgd/sgd.h"

namespace hbmtune::lowering {

OptimizerStep::OptimizerStep(Context& context, const OptimizerSettings& settings)
    : context_(context), settings_(settings) {
  for (Parameter& parameter : context.parameters.all()) {
    if (parameter.trainable) states_.push_back(MakeState(parameter));
  }
  Tape& tape = context.tape;
  step_ = ZeroState("step", Dtype::kI64, {1});
  control_ = ZeroState("control", context.statistics(), {ops::kControlSize});
  int64_t partials = 0;
  for (const State& state : states_) {
    partials += ops::SquaresPartials(state.parameter->weight.elements());
  }
  partials_ = ZeroState("grad_norm_partials", context.statistics(), {partials});
  if (!context.loss_scale) return;
  trackers_ = ZeroState("loss_scale_trackers", Dtype::kI64, {2});
  tape.Run(ops::kFill, {}, {tape.ViewOf(trackers_, {1}, {1}, 1)},
           Attrs::Of(FillAttrs{static_cast<double>(context.config.loss_scale.hysteresis)}));
}

Tensor OptimizerStep::ZeroState(const std::string& name, Dtype dtype, const Dims& shape) {
  Tensor tensor = context_.tape.Full(dtype, shape, 0, Category::kOptimizer);
  context_.tape.NameState(name, tensor);
  return tensor;
}

OptimizerStep::State OptimizerStep::MakeState(Parameter& parameter) {
  State state{&parameter, {}, {}};
  const Dims& shape = parameter.weight.shape();
  const Dtype dtype = context_.config.optimizer_state_dtype;
  const std::string& name = parameter.name;
  switch (context_.workload.optimizer) {
    case Optimizer::kAdamw:
      state.moments = {ZeroState(name + ".exp_avg", dtype, shape),
                       ZeroState(name + ".exp_avg_sq", dtype, shape)};
      break;
    case Optimizer::kAdamw8bit: {
      const Dims codes{parameter.weight.elements()};
      const Dims scales{ops::Adamw8bitBlocks(codes[0])};
      state.moments = {ZeroState(name + ".exp_avg", Dtype::kU8, codes),
                       ZeroState(name + ".exp_avg_sq", Dtype::kU8, codes),
                       ZeroState(name + ".exp_avg_scale", Dtype::kF32, scales),
                       ZeroState(name + ".exp_avg_sq_scale", Dtype::kF32, scales)};
      break;
    }
    case Optimizer::kSgd:
      if (settings_.momentum > 0) {
        state.moments = {ZeroState(name + ".momentum", dtype, shape)};
      }
      break;
  }
  if (context_.config.master_weights && IsHalf(parameter.weight.dtype())) {
    state.master = context_.tape.Empty(Dtype::kF32, shape, Category::kOptimizer);
    context_.tape.NameState(name + ".master", state.master);
  }
  return state;
}

void OptimizerStep::CopyMasters() {
  for (State& state : states_) {
    if (!state.master) continue;
    context_.tape.Run(ops::kCopy, {state.parameter->weight}, {state.master});
  }
}

void OptimizerStep::Run() {
  Clip();
  Tape& tape = context_.tape;
  tape.Phase(PhaseKind::kOptimizer);
  tape.Run(ops::kOptimizerStep, {control_}, {step_});
  for (State& state : states_) Update(state);
  if (context_.loss_scale) {
    const LossScaleConfig& config = context_.config.loss_scale;
    tape.Run(ops::kLossScale, {control_}, {context_.loss_scale, trackers_},
             Attrs::Of(ops::LossScaleAttrs{config.window, config.hysteresis, config.min}));
  }
  tape.ReadScalar(tape.ViewOf(control_, {1}, {1}, ops::kControlNorm), ScalarSlot::kGradNorm);
  tape.ReadScalar(tape.ViewOf(control_, {1}, {1}, ops::kControlFoundInf), ScalarSlot::kFoundInf);
}

void OptimizerStep::Clip() {
  Tape& tape = context_.tape;
  tape.Phase(PhaseKind::kClip);
  int64_t begin = 0;
  for (const State& state : states_) {
    const int64_t mine = ops::SquaresPartials(state.parameter->weight.elements());
    tape.Run(ops::kGradNormSquares, {state.parameter->weight.grad()},
             {tape.ViewOf(partials_, {mine}, {1}, begin)});
    begin += mine;
  }
  std::vector<Tensor> in{partials_};
  if (context_.loss_scale) in.push_back(context_.loss_scale);
  tape.Run(ops::kGradNorm, in, std::vector<Tensor>{control_},
           Attrs::Of(ops::GradNormAttrs{context_.workload.grad_clip}));
}

void OptimizerStep::Update(State& state) {
  Tape& tape = context_.tape;
  Tensor& weight = state.parameter->weight;
  std::vector<Tensor> out{weight};
  out.insert(out.end(), state.moments.begin(), state.moments.end());
  if (state.master) out.push_back(state.master);
  if (context_.workload.optimizer == Optimizer::kSgd) {
    const ops::SgdAttrs attrs{settings_.lr, settings_.momentum, settings_.weight_decay};
    tape.Run(ops::kSgd, std::vector<Tensor>{weight.grad(), control_}, out, Attrs::Of(attrs));
  } else {
    const ops::AdamwAttrs attrs{settings_.lr, settings_.beta1, settings_.beta2, settings_.eps,
                                settings_.weight_decay};
    const bool full = context_.workload.optimizer == Optimizer::kAdamw;
    tape.Run(full ? ops::kAdamw : ops::kAdamw8bit,
             std::vector<Tensor>{weight.grad(), step_, control_}, out, Attrs::Of(attrs));
  }
  if (!context_.parameters.keeps_gradients()) weight.set_grad({});
}

}  // namespace hbmtune::lowering

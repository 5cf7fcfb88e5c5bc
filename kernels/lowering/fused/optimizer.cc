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
  const auto device = MemorySpace::kDevice;
  step_ = ZeroState("step", Dtype::kI64, {1}, device);
  control_ = ZeroState("control", context.statistics(), {ops::kControlSize}, device);
  int64_t partials = 0;
  for (const State& state : states_) {
    partials += ops::SquaresPartials(state.parameter->weight.elements());
  }
  partials_ = ZeroState("grad_norm_partials", context.statistics(), {partials}, device);
  if (context.config.offload.optimizer == OptimizerOffload::kCpuAdam) {
    host_step_ = tape.Empty(Dtype::kI64, {1}, Category::kStaging, MemorySpace::kPinned);
    host_control_ = tape.Empty(control_.dtype(), control_.shape(), Category::kStaging,
                               MemorySpace::kPinned);
  }
  if (!context.loss_scale) return;
  trackers_ = ZeroState("loss_scale_trackers", Dtype::kI64, {2}, device);
  tape.Run(ops::kFill, {}, {tape.ViewOf(trackers_, {1}, {1}, 1)},
           Attrs::Of(FillAttrs{static_cast<double>(context.config.loss_scale.hysteresis)}));
}

MemorySpace OptimizerStep::space() const {
  return context_.config.offload.optimizer == OptimizerOffload::kNone ? MemorySpace::kDevice
                                                                      : MemorySpace::kPinned;
}

Tensor OptimizerStep::ZeroState(const std::string& name, Dtype dtype, const Dims& shape,
                                MemorySpace space) {
  Tensor tensor = context_.tape.Empty(dtype, shape, Category::kOptimizer, space);
  context_.tape.Run(ops::kFill, {}, {tensor}, Attrs::Of(FillAttrs{0}));
  context_.tape.NameState(name, tensor);
  return tensor;
}

OptimizerStep::State OptimizerStep::MakeState(Parameter& parameter) {
  State state{&parameter, {}, {}, {}};
  const Dims& shape = parameter.weight.shape();
  const Dtype dtype = context_.config.optimizer_state_dtype;
  auto zeros = [&](const char* suffix, Dtype type, const Dims& dims) {
    state.moments.push_back(ZeroState(parameter.name + suffix, type, dims, space()));
  };
  switch (context_.workload.optimizer) {
    case Optimizer::kAdamw:
      zeros(".exp_avg", dtype, shape);
      zeros(".exp_avg_sq", dtype, shape);
      break;
    case Optimizer::kAdamw8bit: {
      const Dims codes{parameter.weight.elements()};
      const Dims scales{ops::Adamw8bitBlocks(codes[0])};
      zeros(".exp_avg", Dtype::kU8, codes);
      zeros(".exp_avg_sq", Dtype::kU8, codes);
      zeros(".exp_avg_scale", Dtype::kF32, scales);
      zeros(".exp_avg_sq_scale", Dtype::kF32, scales);
      break;
    }
    case Optimizer::kSgd:
      if (settings_.momentum > 0) zeros(".momentum", dtype, shape);
      break;
  }
  if (context_.config.master_weights && IsHalf(parameter.weight.dtype())) {
    state.master = context_.tape.Empty(Dtype::kF32, shape, Category::kOptimizer, space());
    context_.tape.NameState(parameter.name + ".master", state.master);
  }
  if (context_.config.offload.optimizer == OptimizerOffload::kCpuAdam) {
    state.host_weight = context_.tape.Empty(parameter.weight.dtype(), shape,
                                            Category::kOptimizer, MemorySpace::kPinned);
  }
  return state;
}

void OptimizerStep::Run() {
  Clip();
  Tape& tape = context_.tape;
  tape.Phase(PhaseKind::kOptimizer);
  tape.Run(ops::kOptimizerStep, {control_}, {step_});
  switch (context_.config.offload.optimizer) {
    case OptimizerOffload::kNone: UpdateInPlace(); break;
    case OptimizerOffload::kStream: UpdateStreamed(); break;
    case OptimizerOffload::kCpuAdam: UpdateOnCpu(); break;
  }
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

void OptimizerStep::Update(const Tensor& gradient, const Tensor& step, const Tensor& control,
                           std::vector<Tensor> weight_and_state) {
  Tape& tape = context_.tape;
  if (context_.workload.optimizer == Optimizer::kSgd) {
    const ops::SgdAttrs attrs{settings_.lr, settings_.momentum, settings_.weight_decay};
    tape.Run(ops::kSgd, std::vector<Tensor>{gradient, control}, weight_and_state,
             Attrs::Of(attrs));
    return;
  }
  const ops::AdamwAttrs attrs{settings_.lr, settings_.beta1, settings_.beta2, settings_.eps,
                              settings_.weight_decay};
  const bool full = context_.workload.optimizer == Optimizer::kAdamw;
  tape.Run(full ? ops::kAdamw : ops::kAdamw8bit, std::vector<Tensor>{gradient, step, control},
           weight_and_state, Attrs::Of(attrs));
}

void OptimizerStep::EndGradient(State& state) {
  if (!context_.parameters.keeps_gradients()) state.parameter->weight.set_grad({});
}

void OptimizerStep::UpdateInPlace() {
  for (State& state : states_) {
    std::vector<Tensor> out{state.parameter->weight};
    for (Tensor* tensor : StateTensors(state)) out.push_back(*tensor);
    Update(state.parameter->weight.grad(), step_, control_, std::move(out));
    EndGradient(state);
  }
}

std::vector<Tensor*> OptimizerStep::StateTensors(State& state) {
  std::vector<Tensor*> tensors;
  for (Tensor& moment : state.moments) tensors.push_back(&moment);
  if (state.master) tensors.push_back(&state.master);
  return tensors;
}

}  // namespace hbmtune::lowering

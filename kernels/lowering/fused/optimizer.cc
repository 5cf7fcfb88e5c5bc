#include "kernels/lowering/fused/optimizer.h"

#include "kernels/lowering/fused/data_parallel.h"
#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/adamw_8bit/adamw_8bit.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/ops/grad_norm/grad_norm.h"
#include "kernels/ops/loss_scale/loss_scale.h"
#include "kernels/ops/optimizer_step/optimizer_step.h"
#include "kernels/ops/sgd/sgd.h"

namespace hbmtune::lowering {

OptimizerStep::OptimizerStep(Context& context, const OptimizerSettings& settings,
                             const std::set<std::string>& promoted)
    : context_(context), settings_(settings) {
  if (context.data_parallel != nullptr) partition_ = context.data_parallel->partition();
  int64_t partials = 0;
  for (Parameter& parameter : context.parameters.all()) {
    if (!parameter.trainable) continue;
    partials += ops::SquaresPartials(partition_.PartElements(parameter.elements()));
    if (partition_.stage == 0 ||
        partition_.OwnElements(parameter.elements(), partition_.rank) > 0) {
      states_.push_back(MakeState(parameter, promoted.contains(parameter.name)));
    }
  }
  Tape& tape = context.tape;
  const auto device = MemorySpace::kDevice;
  step_ = ZeroState("step", Dtype::kI64, {1}, device);
  control_ = ZeroState("control", context.statistics(), {ops::kControlSize}, device);
  partials_ = ZeroState("grad_norm_partials", context.statistics(), {partition_.ranks, partials},
                        device);
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

OptimizerStep::State OptimizerStep::MakeState(Parameter& parameter, bool promoted) {
  State state{&parameter, parameter.weight, {}, {}, {}};
  if (partition_.stage > 0) {
    const int64_t own = partition_.OwnElements(parameter.elements(), partition_.rank);
    state.weight = context_.tape.ViewOf(parameter.part, {own}, {1});
  }
  if (context_.config.promotion.grad_norm_threshold > 0) {
    context_.tape.NameState(parameter.name + ".part", state.weight);
  }
  const Dims& shape = state.weight.shape();
  const Dtype dtype = promoted ? Dtype::kF32 : context_.config.optimizer_state_dtype;
  auto zeros = [&](const char* suffix, Dtype type, const Dims& dims) {
    state.moments.push_back(ZeroState(parameter.name + suffix, type, dims, space()));
  };
  switch (context_.workload.optimizer) {
    case Optimizer::kAdamw:
      zeros(".exp_avg", dtype, shape);
      zeros(".exp_avg_sq", dtype, shape);
      break;
    case Optimizer::kAdamw8bit: {
      const Dims codes{state.weight.elements()};
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
  if ((context_.config.master_weights || promoted) && IsHalf(state.weight.dtype())) {
    state.master = context_.tape.Empty(Dtype::kF32, shape, Category::kOptimizer, space());
    context_.tape.NameState(parameter.name + ".master", state.master);
  }
  if (context_.config.offload.optimizer == OptimizerOffload::kCpuAdam) {
    state.host_weight = context_.tape.Empty(state.weight.dtype(), shape,
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
  if (context_.data_parallel != nullptr) {
    context_.data_parallel->EndStep();
    context_.data_parallel->GatherWeights();
  }
  if (context_.loss_scale) {
    const LossScaleConfig& config = context_.config.loss_scale;
    tape.Run(ops::kLossScale, {control_}, {context_.loss_scale, trackers_},
             Attrs::Of(ops::LossScaleAttrs{config.window, config.hysteresis, config.min}));
  }
  tape.ReadScalar(tape.ViewOf(control_, {1}, {1}, ops::kControlNorm), ScalarSlot::kGradNorm);
  tape.ReadScalar(tape.ViewOf(control_, {1}, {1}, ops::kControlFoundInf), ScalarSlot::kFoundInf);
}

void OptimizerStep::SquaresOf(const Tensor& gradient, int64_t row, int64_t begin) {
  Tape& tape = context_.tape;
  const int64_t width = partials_.strides()[0];
  tape.Run(ops::kGradNormSquares, {gradient},
           {tape.ViewOf(partials_, {ops::SquaresPartials(gradient.elements())}, {1},
                        row * width + begin)});
}

// Every part of every gradient is squared by itself, in any stage, so that the norm does not
// depend on who holds it.
void OptimizerStep::Clip() {
  Tape& tape = context_.tape;
  tape.Phase(PhaseKind::kClip);
  int64_t begin = 0;
  for (Parameter& parameter : context_.parameters.all()) {
    if (!parameter.trainable) continue;
    const int64_t elements = parameter.elements();
    const int64_t part = partition_.PartElements(elements);
    for (int64_t r = 0; r < partition_.ranks; ++r) {
      const int64_t own = partition_.OwnElements(elements, r);
      if (own == 0 || (partition_.stage > 0 && r != partition_.rank)) continue;
      if (partition_.stage > 0) {
        SquaresOf(parameter.part_gradient, r, begin);
      } else {
        SquaresOf(tape.ViewOf(parameter.gradient, {own}, {1}, r * part), r, begin);
      }
    }
    begin += ops::SquaresPartials(part);
  }
  if (partition_.stage > 0) context_.data_parallel->AllGatherRows(partials_);
  std::vector<Tensor> in{tape.ViewOf(partials_, {partials_.elements()}, {1})};
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

Tensor OptimizerStep::GradientOf(const State& state) const {
  return partition_.stage > 0 ? state.parameter->part_gradient : state.parameter->gradient;
}

void OptimizerStep::EndGradient(State& state) {
  context_.parameters.EndGradient(*state.parameter);
  state.parameter->part_gradient = {};
}

void OptimizerStep::UpdateInPlace() {
  for (State& state : states_) {
    std::vector<Tensor> out{state.weight};
    for (Tensor* tensor : StateTensors(state)) out.push_back(*tensor);
    Update(GradientOf(state), step_, control_, std::move(out));
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

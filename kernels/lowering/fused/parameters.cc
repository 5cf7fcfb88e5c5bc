#include "kernels/lowering/fused/parameters.h"

#include <stdexcept>

namespace hbmtune::lowering {

Parameters::Parameters(Tape& tape, const Workload& workload, const TrainConfig& config)
    : tape_(tape) {
  const std::vector<ParameterEntry> table = ParameterTable(workload.model);
  const std::vector<ParameterEntry> adapters = LoraTable(workload.model, workload.lora);
  all_.reserve(table.size() + adapters.size());
  for (const ParameterEntry& entry : table) Add(entry, adapters.empty(), config.param_dtype);
  for (const ParameterEntry& entry : adapters) Add(entry, true, config.param_dtype);
  written_.resize(all_.size());
}

void Parameters::Add(const ParameterEntry& entry, bool trainable, Dtype dtype) {
  Parameter parameter{entry.name, entry.role, entry.layer, trainable, {}, 0};
  parameter.weight = tape_.Empty(dtype, entry.shape, Category::kWeights);
  parameter.weight.set_requires_grad(trainable);
  tape_.NameParameter(entry.name, parameter.weight);
  index_.emplace(entry.name, all_.size());
  all_.push_back(std::move(parameter));
}

Parameter* Parameters::Find(const std::string& name) {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &all_[found->second];
}

Parameter& Parameters::At(const std::string& name) {
  Parameter* parameter = Find(name);
  if (parameter == nullptr) throw std::logic_error("the model has no parameter " + name);
  return *parameter;
}

void Parameters::KeepGradients() {
  keeps_gradients_ = true;
  for (Parameter& parameter : all_) {
    if (!parameter.trainable) continue;
    Tensor grad = tape_.Empty(parameter.weight.dtype(), parameter.weight.shape(),
                              Category::kGradients);
    tape_.NameState(parameter.name + ".grad", grad);
    parameter.weight.set_grad(std::move(grad));
  }
}

void Parameters::BeginStep() { written_.assign(all_.size(), false); }

void Parameters::Use(Parameter& parameter) {
  if (parameter.trainable && tape_.grad_enabled()) ++parameter.pending_gradients;
}

GradientSlot Parameters::Gradient(Parameter& parameter) {
  const size_t index = &parameter - all_.data();
  const bool accumulate = written_[index];
  written_[index] = true;
  if (!parameter.weight.grad()) {
    parameter.weight.set_grad(tape_.Empty(parameter.weight.dtype(), parameter.weight.shape(),
                                          Category::kGradients));
  }
  return {parameter.weight.grad(), accumulate};
}

void Parameters::Done(Parameter& parameter) {
  if (--parameter.pending_gradients == 0 && on_gradient_) on_gradient_(parameter);
}

}  // namespace hbmtune::lowering

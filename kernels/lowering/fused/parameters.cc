#include "kernels/lowering/fused/parameters.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/ops/adamw_8bit/adamw_8bit.h"

namespace hbmtune::lowering {

int64_t Partition::PartElements(int64_t elements) const {
  if (ranks == 1) return elements;
  const int64_t blocks = (elements + ops::kAdamw8bitBlock - 1) / ops::kAdamw8bitBlock;
  return (blocks + ranks - 1) / ranks * ops::kAdamw8bitBlock;
}

int64_t Partition::OwnElements(int64_t elements, int64_t r) const {
  const int64_t part = PartElements(elements);
  return std::clamp<int64_t>(elements - r * part, 0, part);
}

Partition PartitionOf(const Workload& workload, const TrainConfig& config, int64_t rank) {
  if (workload.world_size == 1) return {};
  return {workload.world_size, rank, config.zero.stage};
}

Parameters::Parameters(Tape& tape, const Workload& workload, const TrainConfig& config,
                       const Partition& partition)
    : tape_(tape) {
  const std::vector<ParameterEntry> table = ParameterTable(workload.model);
  const std::vector<ParameterEntry> adapters = LoraTable(workload.model, workload.lora);
  all_.reserve(table.size() + adapters.size());
  for (const ParameterEntry& entry : table) Add(entry, adapters.empty(), config, partition);
  for (const ParameterEntry& entry : adapters) Add(entry, true, config, partition);
  written_.resize(all_.size());
}

void Parameters::Add(const ParameterEntry& entry, bool trainable, const TrainConfig& config,
                     const Partition& partition) {
  Parameter p;
  p.name = entry.name;
  p.role = entry.role;
  p.layer = entry.layer;
  p.trainable = trainable;
  p.shape = entry.shape;
  const int64_t elements = p.elements();
  // Vectors stay whole: a norm's weight is read in both passes and is not worth a collective.
  p.resident = partition.stage < 3 || p.shape.rank() == 1 ||
               elements < config.zero.param_persistence_threshold;
  if (p.resident) {
    p.weight = tape_.Empty(config.param_dtype, p.shape, Category::kWeights);
    p.leaf = p.weight;
    if (partition.stage > 0 && trainable) {
      const int64_t own = partition.OwnElements(elements, partition.rank);
      const int64_t begin = own == 0 ? 0 : partition.rank * partition.PartElements(elements);
      p.part = tape_.ViewOf(p.weight, {own}, {1}, begin);
    }
  } else {
    p.part = tape_.Empty(config.param_dtype, {partition.PartElements(elements)},
                         Category::kWeights);
    p.leaf = p.part;
  }
  p.leaf.set_requires_grad(trainable);
  tape_.NameParameter(p.name, p.leaf);
  index_.emplace(p.name, all_.size());
  all_.push_back(std::move(p));
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
    parameter.gradient = tape_.Empty(parameter.leaf.dtype(), parameter.shape,
                                     Category::kGradients);
    tape_.NameState(parameter.name + ".grad", parameter.gradient);
  }
}

void Parameters::EndGradient(Parameter& parameter) {
  written_[&parameter - all_.data()] = false;
  if (!keeps_gradients_) parameter.gradient = {};
}

void Parameters::Use(Parameter& parameter) {
  if (parameter.trainable && tape_.grad_enabled()) ++parameter.pending_gradients;
}

GradientSlot Parameters::Gradient(Parameter& parameter) {
  const size_t index = &parameter - all_.data();
  const bool accumulate = written_[index];
  written_[index] = true;
  if (!parameter.gradient) {
    parameter.gradient = tape_.Empty(parameter.leaf.dtype(), parameter.shape,
                                     Category::kGradients);
  }
  return {parameter.gradient, accumulate};
}

void Parameters::Done(Parameter& parameter) {
  if (--parameter.pending_gradients == 0 && on_gradient_) on_gradient_(parameter);
}

}  // namespace hbmtune::lowering

#include "kernels/lowering/hf/zero0.h"

#include <algorithm>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/optimizer_step/optimizer_step.h"

namespace hbmtune::lowering {
namespace {

constexpr int64_t kBucketElements = 500'000'000;  // engine.py, MEMORY_OPT_ALLREDUCE_SIZE

// Copies into one after the other; flatten() of a single tensor is that tensor.
Tensor Joined(Aten& aten, const std::vector<Tensor>& tensors) {
  Tape& tape = aten.tape();
  int64_t elements = 0;
  for (const Tensor& tensor : tensors) elements += tensor.elements();
  if (tensors.size() == 1) return tape.ViewOf(tensors[0], {elements}, {1});
  Tensor flat = aten.New(tensors[0].dtype(), {elements});
  int64_t at = 0;
  for (const Tensor& tensor : tensors) {
    tape.Run(ops::kCopy, {tensor},
             {tape.ViewOf(flat, tensor.shape(), DenseStrides(tensor.shape()), at)});
    at += tensor.elements();
  }
  return flat;
}

}  // namespace

ReplicatedOptimizer::ReplicatedOptimizer(Aten& aten, const Workload& workload,
                                         const TrainConfig& config, const HfOptions& options,
                                         std::vector<HfParameter>& parameters)
    : aten_(aten),
      options_(options),
      dtype_(config.compute_dtype),
      ranks_(std::max<int64_t>(1, workload.world_size)) {
  for (HfParameter& parameter : parameters) {
    if (parameter.trained) trained_.push_back(&parameter);
  }
  MakeGroups();
  aten_.set_category(Category::kOptimizer);
  overflow_buffer_ = aten_.Scratch(Dtype::kI32, {1});  // FusedAdam's
  for (Group& group : groups_) {
    Flatten(group);
    NameMasters(group);
  }
  MakeStates();
  aten_.set_category(Category::kActivations);
  count_ = aten_.HostState(Dtype::kI64, {1});
  NameAnew(aten_.tape(), parameters);
}

void ReplicatedOptimizer::MakeGroups() {
  groups_.resize(options_.trainer_groups ? 2 : 1);
  groups_[0].weight_decay = options_.optimizer.weight_decay;
  for (HfParameter* parameter : trained_) {
    Group& group = groups_[options_.trainer_groups && !parameter->decayed ? 1 : 0];
    group.parameters.push_back(parameter);
    group.elements += parameter->tensor.elements();
  }
  std::erase_if(groups_, [](const Group& group) { return group.parameters.empty(); });
}

// Clones of all, joined; then each parameter gives way to its part of that. The master by way of
// another clone.
void ReplicatedOptimizer::Flatten(Group& group) {
  Tape& tape = aten_.tape();
  auto clone = [&](const Tensor& tensor) {
    Tensor copy = aten_.New(dtype_, tensor.shape());
    tape.Run(ops::kCopy, {tensor}, {copy});
    return copy;
  };
  aten_.set_category(Category::kWeights);
  std::vector<Tensor> clones;
  for (HfParameter* parameter : group.parameters) clones.push_back(clone(parameter->tensor));
  group.flat = Joined(aten_, clones);
  while (!clones.empty()) clones.pop_back();
  int64_t at = 0;
  for (HfParameter* parameter : group.parameters) {
    const Tensor& p = parameter->tensor;
    tape.Rebind(p, tape.ViewOf(group.flat, p.shape(), DenseStrides(p.shape()), at));
    at += p.elements();
  }
  aten_.set_category(Category::kStaging);
  Tensor copy = clone(group.flat);
  aten_.set_category(Category::kOptimizer);
  group.master = aten_.New(Dtype::kF32, {group.elements});
  tape.Run(ops::kCopy, {copy}, {group.master});
}

void ReplicatedOptimizer::NameMasters(const Group& group) {
  int64_t at = 0;
  for (const HfParameter* parameter : group.parameters) {
    const int64_t end = at + parameter->tensor.elements();
    aten_.tape().NameState(parameter->name + ".master",
                           Range(aten_.tape(), group.master, at, end));
    at = end;
  }
}

// initialize_optimizer_states: a step over gradients of zeros.
void ReplicatedOptimizer::MakeStates() {
  aten_.set_category(Category::kStaging);
  std::vector<Tensor> zeros;
  for (const Group& group : groups_) zeros.push_back(aten_.Scratch(Dtype::kF32, {group.elements}));
  aten_.set_category(Category::kOptimizer);
  for (Group& group : groups_) {
    group.exp_avg = aten_.Full(Dtype::kF32, {group.elements}, 0);
    group.exp_avg_sq = aten_.Full(Dtype::kF32, {group.elements}, 0);
  }
  for (Tensor& gradient : zeros) gradient = {};
}

// allreduce_no_retain, once a step: buckets are copies, which go back to where the gradients are.
void ReplicatedOptimizer::EndBackward() {
  if (!last_) return;
  aten_.set_category(Category::kCommunication);
  std::vector<Tensor> bucket;
  int64_t elements = 0;
  for (HfParameter* parameter : trained_) {
    bucket.push_back(parameter->tensor.grad());
    elements += parameter->tensor.elements();
    if (elements <= kBucketElements) continue;
    ReduceBucket(bucket);
    bucket.clear();
    elements = 0;
  }
  if (!bucket.empty()) ReduceBucket(bucket);
  aten_.set_category(Category::kActivations);
}

void ReplicatedOptimizer::ReduceBucket(const std::vector<Tensor>& gradients) {
  Tape& tape = aten_.tape();
  Tensor flat = Joined(aten_, gradients);
  if (ranks_ > 1) tape.Collective(CollectiveKind::kAllReduce, flat, flat);
  if (gradients.size() == 1) return;
  int64_t at = 0;
  for (const Tensor& gradient : gradients) {
    const Dims& shape = gradient.shape();
    tape.Run(ops::kCopy, {tape.ViewOf(flat, shape, DenseStrides(shape), at)}, {gradient});
    at += gradient.elements();
  }
}

// Each gradient as fp32, all of them joined; then the 16-bit ones go.
void ReplicatedOptimizer::Widen(Group& group) {
  std::vector<Tensor> wide;
  for (HfParameter* parameter : group.parameters) {
    const Tensor gradient = parameter->tensor.grad();
    wide.push_back(aten_.New(Dtype::kF32, gradient.shape()));
    aten_.tape().Run(ops::kCopy, {gradient}, {wide.back()});
  }
  group.gradient = Joined(aten_, wide);
  while (!wide.empty()) wide.pop_back();
  for (HfParameter* parameter : group.parameters) parameter->tensor.set_grad({});
}

void ReplicatedOptimizer::Step() {
  Tape& tape = aten_.tape();
  tape.Run(ops::kOptimizerStep, {}, {count_});
  aten_.set_category(Category::kStaging);
  for (Group& group : groups_) Widen(group);
  const OptimizerSettings& s = options_.optimizer;
  for (Group& group : groups_) {
    const ops::AdamwAttrs attrs{s.lr, s.beta1, s.beta2, s.eps, group.weight_decay};
    tape.Run(ops::kAdamw, {group.gradient, count_},
             {group.flat, group.exp_avg, group.exp_avg_sq, group.master}, Attrs::Of(attrs));
  }
  for (size_t i = groups_.size(); i-- > 0;) groups_[i].gradient = {};
  aten_.set_category(Category::kActivations);
}

}  // namespace hbmtune::lowering

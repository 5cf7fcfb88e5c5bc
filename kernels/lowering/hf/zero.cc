#include "kernels/lowering/hf/zero.h"

#include <algorithm>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/ops/optimizer_step/optimizer_step.h"

namespace hbmtune::lowering {

Tensor Range(Tape& tape, const Tensor& flat, int64_t begin, int64_t end) {
  return tape.ViewOf(flat, {end - begin}, {1}, begin);
}

void NameAnew(Tape& tape, const std::vector<HfParameter>& parameters) {
  tape.program().parameters.clear();
  for (const HfParameter& parameter : parameters) {
    tape.NameParameter(parameter.name, parameter.tensor);
  }
}

ZeroOptimizer::ZeroOptimizer(Aten& aten, const Workload& workload, const TrainConfig& config,
                             const HfOptions& options, std::vector<HfParameter>& parameters)
    : aten_(aten),
      workload_(workload),
      config_(config),
      options_(options),
      dtype_(config.compute_dtype),
      ranks_(std::max<int64_t>(1, workload.world_size)) {
  MakeGroups(parameters, options.trainer_groups);
  for (Group& group : groups_) {
    group.whole.resize(group.entries.size());
    group.accumulated.resize(group.entries.size());
    Flatten(group);
    MakeMasters(group);
    for (const Entry& entry : group.entries) {
      if (ranks_ > 1) break;  // a rank has them in part
      aten_.tape().NameState(entry.parameter->name + ".master",
                             Range(aten_.tape(), group.master, entry.begin, entry.end));
    }
  }
  aten_.set_category(Category::kStaging);
  if (offloads()) {
    int64_t largest = 0;
    for (const Group& group : groups_) {
      for (const Entry& e : group.entries) largest = std::max(largest, e.end - e.begin);
    }
    largest_ = aten_.Scratch(dtype_, {largest});
  } else {
    std::vector<Tensor> zeros;  // initialize_optimizer_states
    for (const Group& group : groups_) zeros.push_back(aten_.Scratch(Dtype::kF32, {group.part}));
    zeros.clear();
  }
  aten_.set_category(Category::kActivations);
  count_ = aten_.HostState(Dtype::kI64, {1});
  NameAnew(aten_.tape(), parameters);
}

void ZeroOptimizer::MakeGroups(std::vector<HfParameter>& parameters, bool trainer_groups) {
  groups_.resize(trainer_groups ? 2 : 1);
  groups_[0].weight_decay = options_.optimizer.weight_decay;
  for (HfParameter& parameter : parameters) {
    if (!parameter.trained) continue;
    const size_t index = trainer_groups && !parameter.decayed ? 1 : 0;
    Group& group = groups_[index];
    const int64_t begin = group.entries.empty() ? 0 : group.entries.back().end;
    group.entries.push_back({&parameter, index, begin, begin + parameter.tensor.elements()});
  }
  std::erase_if(groups_, [](const Group& group) { return group.entries.empty(); });
  const int64_t alignment = 2 * ranks_;  // nccl_start_alignment_factor
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    for (Entry& entry : group.entries) entry.group = i;
    const int64_t total = group.entries.back().end;
    group.part = (total + alignment - 1) / alignment * alignment / ranks_;
  }
}

// One flat tensor beside the parameters, which then become views of it; through the host where the
// device has no room for both.
void ZeroOptimizer::Flatten(Group& group) {
  Tape& tape = aten_.tape();
  const int64_t elements = group.part * ranks_;
  const int64_t bytes = elements * SizeOf(dtype_);
  const bool on_device = options_.gpu.capacity_bytes == 0 ||
                         options_.gpu.capacity_bytes - bytes >= bytes;
  aten_.set_category(Category::kWeights);
  if (!on_device) {
    Tensor host = tape.Empty(dtype_, {elements}, Category::kWeights, MemorySpace::kPinned);
    for (const Entry& e : group.entries) {
      const Tensor& p = e.parameter->tensor;
      tape.Copy(tape.ViewOf(p, {p.elements()}, {1}), Range(tape, host, e.begin, e.end));
      tape.Rebind(p, tape.ViewOf(host, p.shape(), DenseStrides(p.shape()), e.begin));
    }
    group.flat = aten_.New(dtype_, {elements});
    tape.Copy(host, group.flat);
  } else {
    group.flat = aten_.New(dtype_, {elements});
    for (const Entry& e : group.entries) {
      const Tensor& p = e.parameter->tensor;
      tape.Run(ops::kCopy, {p},
               {tape.ViewOf(group.flat, p.shape(), DenseStrides(p.shape()), e.begin)});
    }
  }
  for (const Entry& e : group.entries) {
    const Tensor& p = e.parameter->tensor;
    tape.Rebind(p, tape.ViewOf(group.flat, p.shape(), DenseStrides(p.shape()), e.begin));
  }
  aten_.set_category(Category::kActivations);
}

void ZeroOptimizer::MakeMasters(Group& group) {
  Tape& tape = aten_.tape();
  Tensor own = Range(tape, group.flat, PartBegin(group), PartBegin(group) + group.part);
  if (!offloads()) {
    aten_.set_category(Category::kStaging);
    Tensor clone = aten_.New(dtype_, {group.part});
    tape.Run(ops::kCopy, {own}, {clone});
    aten_.set_category(Category::kOptimizer);
    group.master = aten_.New(Dtype::kF32, {group.part});
    tape.Run(ops::kCopy, {clone}, {group.master});
    return;
  }
  auto pinned = [&](Dtype dtype) {
    return tape.Empty(dtype, {group.part}, Category::kOptimizer, MemorySpace::kPinned);
  };
  group.host_staging = pinned(dtype_);
  tape.Copy(own, group.host_staging);
  group.master = pinned(Dtype::kF32);
  tape.Run(ops::kCopy, {group.host_staging}, {group.master});
  group.host_grad = pinned(Dtype::kF32);
  for (Tensor* state : {&group.exp_avg, &group.exp_avg_sq}) {
    *state = aten_.HostState(Dtype::kF32, {group.part});
  }
}

std::pair<int64_t, int64_t> ZeroOptimizer::Own(const Entry& entry) const {
  const Group& group = groups_[entry.group];
  const int64_t begin = std::max(entry.begin, PartBegin(group));
  const int64_t end = std::min(entry.end, PartBegin(group) + group.part);
  return {begin, std::max(begin, end)};
}

// --- step -----------------------------------------------------------------------------------

// The norm casts this rank's part of one gradient after the other to fp64.
void ZeroOptimizer::NormScratch() {
  std::vector<Tensor> norms;
  for (const Group& group : groups_) {
    for (const Entry& entry : group.entries) {
      const auto [begin, end] = Own(entry);
      if (begin == end) continue;
      Tensor wide = aten_.Scratch(Dtype::kF64, {end - begin});
      norms.push_back(aten_.Scratch(Dtype::kF64, {}));
    }
    norms.clear();
  }
}

void ZeroOptimizer::UpdateGroup(Group& group, const Tensor& gradient) {
  const OptimizerSettings& s = options_.optimizer;
  const ops::AdamwAttrs attrs{s.lr, s.beta1, s.beta2, s.eps, group.weight_decay};
  Tape& tape = aten_.tape();
  Tensor param = offloads() ? group.host_staging
                            : Range(tape, group.flat, PartBegin(group),
                                    PartBegin(group) + group.part);
  tape.Run(ops::kAdamw, {gradient, count_}, {param, group.exp_avg, group.exp_avg_sq, group.master},
           Attrs::Of(attrs));
}

// flatten() of a single tensor is that tensor.
Tensor ZeroOptimizer::FlatGradients(size_t index) {
  Tape& tape = aten_.tape();
  Group& group = groups_[index];
  const int64_t offset = OwnOffset(index);
  std::vector<Tensor> parts;
  int64_t elements = 0;
  for (size_t i = 0; i < group.entries.size(); ++i) {
    const Entry& entry = group.entries[i];
    const auto [begin, end] = Own(entry);
    if (begin == end) continue;
    elements += end - begin;
    parts.push_back(contiguous()
                        ? Range(tape, accumulated_, offset + begin - PartBegin(group),
                                offset + end - PartBegin(group))
                        : tape.ViewOf(group.accumulated[i], {end - begin}, {1},
                                      begin - entry.begin));
  }
  if (parts.size() == 1 && elements == group.part) return parts[0];
  Tensor flat = aten_.New(dtype_, {group.part});
  int64_t at = 0;
  for (const Tensor& part : parts) {
    tape.Run(ops::kCopy, {part}, {Range(tape, flat, at, at + part.elements())});
    at += part.elements();
  }
  if (at < group.part) tape.Run(ops::kFill, {}, {Range(tape, flat, at, group.part)},
                                Attrs::Of(FillAttrs{0}));
  return flat;
}

void ZeroOptimizer::StepGroup(size_t index) {
  Tape& tape = aten_.tape();
  Group& group = groups_[index];
  aten_.set_category(Category::kStaging);
  Tensor flat = FlatGradients(index);
  Tensor wide = aten_.New(Dtype::kF32, {group.part});
  tape.Run(ops::kCopy, {flat}, {wide});
  flat = {};
  for (size_t i = group.accumulated.size(); i-- > 0;) group.accumulated[i] = {};
  if (index + 1 == groups_.size()) accumulated_ = {};
  aten_.set_category(Category::kOptimizer);
  if (!group.exp_avg) {
    if (config_.optimizer_loop == OptimizerLoop::kFused) {
      group.step = aten_.Full(Dtype::kF32, {}, 0);
    }
    group.exp_avg = aten_.Full(Dtype::kF32, {group.part}, 0);
    group.exp_avg_sq = aten_.Full(Dtype::kF32, {group.part}, 0);
  }
  aten_.set_category(Category::kStaging);
  Tensor root;
  if (config_.optimizer_loop != OptimizerLoop::kFused) {
    root = aten_.Scratch(Dtype::kF32, {group.part});
  }
  UpdateGroup(group, wide);
  root = {};
  wide = {};
}

void ZeroOptimizer::StepOnHost(Group& group) {
  Tape& tape = aten_.tape();
  UpdateGroup(group, group.host_grad);
  tape.Copy(group.host_staging,
            Range(tape, group.flat, PartBegin(group), PartBegin(group) + group.part));
}

void ZeroOptimizer::Step() {
  Tape& tape = aten_.tape();
  tape.Run(ops::kOptimizerStep, {}, {count_});
  aten_.set_category(Category::kStaging);
  if (!offloads()) NormScratch();
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    if (offloads()) {
      StepOnHost(group);
    } else {
      StepGroup(i);
    }
    if (ranks_ > 1) tape.Collective(CollectiveKind::kAllGather, group.flat, group.flat);
  }
  norms_.clear();
  aten_.set_category(Category::kActivations);
}

void ZeroOptimizer::ZeroGrad() {
  for (Group& group : groups_) {
    for (Entry& entry : group.entries) entry.parameter->tensor.set_grad({});
  }
}

}  // namespace hbmtune::lowering

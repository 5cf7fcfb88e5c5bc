#include "kernels/lowering/hf/zero.h"

#include <algorithm>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/ops/optimizer_step/optimizer_step.h"

namespace hbmtune::lowering {
namespace {

Tensor Range(Tape& tape, const Tensor& flat, int64_t begin, int64_t end) {
  return tape.ViewOf(flat, {end - begin}, {1}, begin);
}

}  // namespace

ZeroOptimizer::ZeroOptimizer(Aten& aten, const Workload& workload, const TrainConfig& config,
                             const HfOptions& options, std::vector<HfParameter>& parameters)
    : aten_(aten),
      workload_(workload),
      config_(config),
      options_(options),
      dtype_(config.compute_dtype),
      ranks_(std::max<int64_t>(1, workload.world_size)) {
  MakeGroups(parameters, options.trainer_groups);
  own_gradients_.resize(groups_.size());
  accumulated_.resize(groups_.size());
  for (Group& group : groups_) {
    Flatten(group);
    MakeMasters(group);
  }
  Tape& tape = aten_.tape();
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
  count_ = tape.Empty(Dtype::kI64, {1}, Category::kOptimizer, MemorySpace::kPinned);
  tape.Run(ops::kFill, {}, {count_}, Attrs::Of(FillAttrs{0}));
  tape.program().parameters.clear();
  for (const HfParameter& parameter : parameters) {
    tape.NameParameter(parameter.name, parameter.tensor);
  }
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
    *state = pinned(Dtype::kF32);
    tape.Run(ops::kFill, {}, {*state}, Attrs::Of(FillAttrs{0}));
  }
}

std::pair<int64_t, int64_t> ZeroOptimizer::Own(const Entry& entry) const {
  const Group& group = groups_[entry.group];
  const int64_t begin = std::max(entry.begin, PartBegin(group));
  const int64_t end = std::min(entry.end, PartBegin(group) + group.part);
  return {begin, std::max(begin, end)};
}

// --- backward -------------------------------------------------------------------------------

void ZeroOptimizer::OnGradient(Tensor& leaf) {
  const Entry* entry = EntryOf(leaf);
  if (entry == nullptr) return;  // the input of a recomputed block
  const Category before = aten_.category();
  aten_.set_category(Category::kCommunication);
  MakeBuckets();
  // Stage 1 keeps whole gradients: until the last micro-step, and without overlap until its end.
  if (!reduces_at_end() && (config_.zero.stage > 1 || last_)) Gather(*entry);
  aten_.set_category(before);
}

void ZeroOptimizer::MakeBuckets() {
  if (bucket_ || !config_.zero.contiguous_gradients) return;
  bucket_ = aten_.New(dtype_, {config_.zero.reduce_bucket_size});
  if (config_.zero.overlap_comm) {
    second_bucket_ = aten_.New(dtype_, {config_.zero.reduce_bucket_size});
  }
}

const ZeroOptimizer::Entry* ZeroOptimizer::EntryOf(const Tensor& leaf) const {
  for (const Group& group : groups_) {
    for (const Entry& entry : group.entries) {
      if (entry.parameter->tensor.SameTensor(leaf)) return &entry;
    }
  }
  return nullptr;
}

// Into the bucket, which is reduced first if there is no room.
void ZeroOptimizer::Gather(const Entry& entry) {
  Tensor leaf = entry.parameter->tensor;
  const int64_t elements = leaf.elements(), size = config_.zero.reduce_bucket_size;
  Tape& tape = aten_.tape();
  if (in_bucket_ + elements > size && in_bucket_ > 0) ReduceBucket();
  Tensor gradient = leaf.grad();
  if (bucket_ && elements <= size) {
    Tensor slot = tape.ViewOf(bucket_, leaf.shape(), DenseStrides(leaf.shape()), in_bucket_);
    tape.Run(ops::kCopy, {gradient}, {slot});
    gradient = slot;
  }
  leaf.set_grad({});
  in_bucket_ += elements;
  pieces_.push_back({&entry, std::move(gradient)});
  if (elements > size) ReduceBucket();
}

// Whether neighbouring gradients of the bucket go to different ranks.
bool ZeroOptimizer::BucketSpansRanks() const {
  int64_t rank = -1;
  for (const Piece& piece : pieces_) {
    const Group& group = groups_[piece.entry->group];
    const int64_t first = piece.entry->begin / group.part;
    const int64_t last = (piece.entry->end - 1) / group.part;
    if (first != last || (rank >= 0 && rank != first)) return true;
    rank = first;
  }
  return false;
}

void ZeroOptimizer::ReduceBucket() {
  Tape& tape = aten_.tape();
  if (ranks_ > 1) {
    Tensor flat;
    const bool copies = !config_.zero.reduce_scatter || BucketSpansRanks() || !bucket_;
    if (copies) flat = aten_.Scratch(dtype_, {in_bucket_});
    const Tensor whole = copies ? flat : Range(tape, bucket_, 0, in_bucket_);
    tape.Collective(config_.zero.reduce_scatter ? CollectiveKind::kReduceScatter
                                                : CollectiveKind::kAllReduce,
                    whole, whole);
  }
  for (const Piece& piece : pieces_) KeepOwn(piece);
  pieces_.clear();
  in_bucket_ = 0;
}

void ZeroOptimizer::KeepOwn(const Piece& piece) {
  const auto [begin, end] = Own(*piece.entry);
  if (begin == end) return;
  Tape& tape = aten_.tape();
  Group& group = groups_[piece.entry->group];
  Tensor from = tape.ViewOf(piece.gradient, {end - begin}, {1}, begin - piece.entry->begin);
  const int64_t in_part = begin - PartBegin(group);
  if (offloads()) {
    tape.Copy(from, Range(tape, group.host_staging, in_part, in_part + end - begin));
    return;
  }
  Tensor& own = MakeOwnGradients(piece.entry->group);
  const int64_t offset = OwnOffset(piece.entry->group) + in_part;
  tape.Run(ops::kCopy, {from}, {Range(tape, own, offset, offset + end - begin)});
}

// Where a group's share lies: all in one tensor, or with a tensor for each group.
int64_t ZeroOptimizer::OwnOffset(size_t group) const {
  if (!config_.zero.contiguous_gradients) return 0;
  int64_t offset = 0;
  for (size_t g = 0; g < group; ++g) offset += groups_[g].part;
  return offset;
}

// Parameters that lie in this rank's share in part have room as a whole.
Tensor& ZeroOptimizer::MakeOwnGradients(size_t group) {
  const bool one = config_.zero.contiguous_gradients;
  Tensor& own = own_gradients_[one ? 0 : group];
  if (own) return own;
  int64_t elements = 0, least = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!one && g != group) continue;
    least += groups_[g].part;
    for (const Entry& entry : groups_[g].entries) {
      const auto [begin, end] = Own(entry);
      if (begin < end) elements += entry.end - entry.begin;
    }
  }
  const Category before = aten_.category();
  aten_.set_category(Category::kGradients);
  own = aten_.New(dtype_, {std::max(elements, least)});
  aten_.set_category(before);
  return own;
}

void ZeroOptimizer::EndBackward() {
  if (config_.zero.stage < 2 && !last_) return;
  Tape& tape = aten_.tape();
  aten_.set_category(Category::kCommunication);
  if (reduces_at_end()) {
    for (const Group& group : groups_) {
      for (const Entry& entry : group.entries) {
        if (entry.parameter->tensor.grad()) Gather(entry);
      }
    }
  }
  if (in_bucket_ > 0) ReduceBucket();
  bucket_ = {};
  second_bucket_ = {};
  aten_.set_category(Category::kActivations);
  if (offloads()) {
    for (Group& group : groups_) {
      tape.Run(ops::kCopy, {group.host_staging}, {group.host_grad});
    }
  }
  for (size_t g = 0; g < own_gradients_.size(); ++g) {
    Tensor& own = own_gradients_[g];
    if (own && accumulated_[g]) {
      tape.Run(ops::kAtenAdd, {accumulated_[g], own}, {accumulated_[g]});
    } else if (own) {
      accumulated_[g] = own;
    }
    own = {};
  }
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

void ZeroOptimizer::StepGroup(size_t index) {
  Tape& tape = aten_.tape();
  Group& group = groups_[index];
  const bool one = config_.zero.contiguous_gradients;
  Tensor gradients = accumulated_[one ? 0 : index];
  const int64_t offset = OwnOffset(index);
  aten_.set_category(Category::kStaging);
  Tensor flat = aten_.New(dtype_, {group.part});
  tape.Run(ops::kCopy, {Range(tape, gradients, offset, offset + group.part)}, {flat});
  Tensor wide = aten_.New(Dtype::kF32, {group.part});
  tape.Run(ops::kCopy, {flat}, {wide});
  flat = {};
  gradients = {};
  if (!one || index + 1 == groups_.size()) accumulated_[one ? 0 : index] = {};
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
  aten_.set_category(Category::kActivations);
}

void ZeroOptimizer::ZeroGrad() {
  for (Group& group : groups_) {
    for (Entry& entry : group.entries) entry.parameter->tensor.set_grad({});
  }
}

}  // namespace hbmtune::lowering

#include "kernels/lowering/hf/zero3.h"

#include <algorithm>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/optimizer_step/optimizer_step.h"

namespace hbmtune::lowering {
Zero3Optimizer::Zero3Optimizer(Aten& aten, const Workload& workload, const TrainConfig& config,
                               const HfOptions& options, std::vector<HfParameter>& parameters)
    : aten_(aten),
      config_(config),
      options_(options),
      dtype_(config.compute_dtype),
      ranks_(std::max<int64_t>(1, workload.world_size)),
      gatherer_(aten, config.zero, options.rank, ranks_) {
  Partition(parameters);
  NameModules(parameters, workload.model.tied_embeddings);
  MakeSubGroups();
  MakeMasters();
  MakeBuffers();
  aten_.set_category(Category::kActivations);
  Tape& tape = aten_.tape();
  count_ = aten_.HostState(Dtype::kI64, {1});
  tape.program().parameters.clear();
  for (const HfParameter& parameter : parameters) {
    tape.NameParameter(parameter.name, gatherer_.ShareOf(parameter.tensor));
  }
  aten_.set_module_hooks(&gatherer_);
}

// Each weight gives way to this rank's share; those of trained ones are moved into one flat tensor.
void Zero3Optimizer::Partition(std::vector<HfParameter>& parameters) {
  Tape& tape = aten_.tape();
  aten_.set_category(Category::kWeights);
  std::vector<Tensor> shares;  // of trained weights
  for (HfParameter& parameter : parameters) {
    const int64_t elements = parameter.tensor.elements();
    const bool persistent = elements <= config_.zero.param_persistence_threshold;
    const Dims shape{(elements + ranks_ - 1) / ranks_};
    Tensor share;
    if (options_.zero_init && parameter.tensor.dtype() == dtype_) {
      share = tape.ViewOf(parameter.tensor, shape, {1});
    } else {  // an adapter of PEFT's comes after zero.Init
      share = aten_.New(parameter.tensor.dtype(), shape);
      tape.Run(ops::kCopy, {tape.ViewOf(parameter.tensor, {1}, {1})},
               {tape.ViewOf(share, {1}, {1})});
    }
    if (parameter.trained) shares.push_back(share);
    gatherer_.Add(parameter.tensor, std::move(share), persistent);
  }
  const int groups = options_.trainer_groups ? 2 : 1;
  int64_t total = 0;
  for (int group = 0; group < groups; ++group) {
    for (HfParameter& parameter : parameters) {
      if (!parameter.trained || (groups == 2 && parameter.decayed != (group == 0))) continue;
      const int64_t share = (parameter.tensor.elements() + ranks_ - 1) / ranks_;
      entries_.push_back({&parameter, share, total});
      decays_.push_back(group == 0 ? options_.optimizer.weight_decay : 0);
      total += share;
    }
  }
  // By way of the host.
  const Dtype dtype = entries_[0].parameter->tensor.dtype();
  Tensor on_host = tape.Empty(dtype, {total}, Category::kWeights, MemorySpace::kPinned);
  UseShares(on_host);
  while (!shares.empty()) shares.erase(shares.begin());
  flat_ = aten_.New(dtype, {total});
  tape.Copy(on_host, flat_);
  UseShares(flat_);
}

void Zero3Optimizer::UseShares(const Tensor& flat) {
  for (const Entry& entry : entries_) {
    gatherer_.SetShare(entry.parameter->tensor, Range(aten_.tape(), flat, entry.begin,
                                                      entry.begin + entry.share));
  }
}

// Modules that have parameters of their own, in the model's order; a tied head is one that shares
// the embedding, which is every model's first.
void Zero3Optimizer::NameModules(const std::vector<HfParameter>& parameters, bool tied_head) {
  std::string_view last;
  for (const HfParameter& parameter : parameters) {
    const std::string_view name = parameter.name;
    const std::string_view module = name.substr(0, name.rfind('.'));
    if (modules_.empty() || module != last) modules_.push_back({});
    modules_.back().push_back(parameter.tensor);
    last = module;
  }
  if (tied_head) modules_.push_back({parameters.front().tensor});
}

void Zero3Optimizer::MakeSubGroups() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const bool opens = sub_groups_.empty() || decays_[i] != decays_[i - 1] ||
                       sub_groups_.back().end - sub_groups_.back().begin >=
                           config_.zero.sub_group_size;
    if (opens) sub_groups_.push_back({decays_[i], entries_[i].begin, 0, 0, {}, {}, {}});
    sub_groups_.back().end = entries_[i].begin + entries_[i].share;
    ++sub_groups_.back().weights;
  }
}

// Each master is a clone of a temporary that dies when the next is made.
void Zero3Optimizer::MakeMasters() {
  Tape& tape = aten_.tape();
  Tensor wide;
  int64_t largest = 0;
  for (SubGroup& group : sub_groups_) {
    const int64_t elements = group.end - group.begin;
    largest = std::max(largest, elements);
    Tensor own = Range(tape, flat_, group.begin, group.end);
    if (offloads()) {
      for (Tensor* state : {&group.master, &group.exp_avg, &group.exp_avg_sq}) {
        *state = aten_.HostState(Dtype::kF32, {elements});
      }
      continue;
    }
    aten_.set_category(Category::kStaging);
    Tensor next = aten_.New(Dtype::kF32, {elements});
    tape.Run(ops::kCopy, {own}, {next});
    wide = std::move(next);
    aten_.set_category(Category::kOptimizer);
    group.master = aten_.New(Dtype::kF32, {elements});
    tape.Run(ops::kCopy, {wide}, {group.master});
  }
  wide = {};
  NameMasters();
  aten_.set_category(Category::kStaging);
  if (!offloads()) aten_.Scratch(Dtype::kF32, {largest});  // initialize_optimizer_states
}

// Of a single rank, which has them whole.
void Zero3Optimizer::NameMasters() {
  if (ranks_ > 1) return;
  size_t group = 0;
  for (const Entry& entry : entries_) {
    while (entry.begin >= sub_groups_[group].end) ++group;
    const int64_t begin = entry.begin - sub_groups_[group].begin;
    aten_.tape().NameState(entry.parameter->name + ".master",
                           Range(aten_.tape(), sub_groups_[group].master, begin,
                                 begin + entry.share));
  }
}

// Bucket and gradient shares stay for good.
void Zero3Optimizer::MakeBuffers() {
  Tape& tape = aten_.tape();
  aten_.set_category(Category::kCommunication);
  if (config_.zero.contiguous_gradients) {
    bucket_ = aten_.New(dtype_, {config_.zero.reduce_bucket_size});
  }
  const int64_t total = sub_groups_.back().end;
  if (offloads()) {
    gradients_ = tape.Empty(dtype_, {total}, Category::kGradients, MemorySpace::kPinned);
    host_gradients_ = tape.Empty(Dtype::kF32, {total}, Category::kGradients,
                                 MemorySpace::kPinned);
  } else {
    aten_.set_category(Category::kGradients);
    gradients_ = aten_.Full(dtype_, {total}, 0);
  }
  aten_.set_category(Category::kStaging);
  for (const Entry& entry : entries_) aten_.Scratch(dtype_, {entry.share * ranks_});
}

void Zero3Optimizer::OnGradient(Tensor& leaf) {
  auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.parameter->tensor.SameTensor(leaf);
  });
  if (entry == entries_.end()) return;  // the input of a recomputed block
  const Category before = aten_.category();
  aten_.set_category(Category::kCommunication);
  const int64_t elements = leaf.elements(), size = config_.zero.reduce_bucket_size;
  if (in_bucket_ + elements > size && in_bucket_ > 0) ReduceBucket();
  Tensor gradient = leaf.grad();
  Tape& tape = aten_.tape();
  if (config_.zero.overlap_comm) {
    const EventId ready = tape.Record();
    OnStream on(tape, kCommStream);
    tape.Wait(ready);
    tape.UseOnCurrentStream(gradient);
  }
  OnStream on(tape, ReduceStream(config_.zero));
  if (bucket_ && elements <= size) {
    Tensor slot = tape.ViewOf(bucket_, leaf.shape(), DenseStrides(leaf.shape()), in_bucket_);
    tape.Run(ops::kCopy, {gradient}, {slot});
    gradient = std::move(slot);
  }
  leaf.set_grad({});
  in_bucket_ += elements;
  pieces_.push_back({&*entry, std::move(gradient)});
  aten_.set_category(before);
}

// What the shares are parts of lives until all of them are kept.
void Zero3Optimizer::ReduceBucket() {
  constexpr size_t kMostReductions = 2;  // max_param_reduce_events
  if (reductions_.size() > kMostReductions) {
    aten_.tape().HostWait(reductions_.front());
    reductions_.pop_front();
  }
  OnStream on(aten_.tape(), ReduceStream(config_.zero));
  Tensor reduced;
  if (config_.zero.reduce_scatter || !bucket_ || in_bucket_ > config_.zero.reduce_bucket_size) {
    reduced = ReduceScatter();
  } else {
    Tensor whole = Range(aten_.tape(), bucket_, 0, in_bucket_);
    gatherer_.Collect(CollectiveKind::kAllReduce, whole, whole);
    reduced = aten_.Scratch(dtype_, {in_bucket_});  // times gradient_predivide_factor, which is 1
  }
  for (Piece& piece : pieces_) {
    KeepOwn(piece);
    piece.gradient = {};
  }
  on_device_ = {};
  pieces_.clear();
  in_bucket_ = 0;
  reductions_.push_back(aten_.tape().Record());
}

// reduce_scatter_coalesced joins the padded gradients once more, unless there is but one. Those of
// fp32 adapters outside of the bucket are made 16-bit before (__avg_scatter_grads).
Tensor Zero3Optimizer::ReduceScatter() {
  // In the order of parameters.
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
    return a.entry->parameter < b.entry->parameter;
  });
  const bool alone = pieces_.size() == 1 && in_bucket_ % ranks_ == 0;
  int64_t padded = 0;
  std::vector<Tensor> narrow;
  for (const Piece& piece : pieces_) {
    padded += piece.entry->share * ranks_;
    narrow.push_back(aten_.To(piece.gradient, dtype_));
  }
  Tensor joined = alone ? narrow[0] : aten_.Scratch(dtype_, {padded});
  gatherer_.Collect(CollectiveKind::kReduceScatter, joined, joined);
  while (!narrow.empty()) narrow.pop_back();
  return joined;
}

void Zero3Optimizer::KeepOwn(const Piece& piece) {
  Tape& tape = aten_.tape();
  const Entry& entry = *piece.entry;
  const int64_t begin = std::min(options_.rank * entry.share, piece.gradient.elements());
  const int64_t end = std::min(begin + entry.share, piece.gradient.elements());
  if (begin == end) return;
  Tensor from = tape.ViewOf(piece.gradient, {end - begin}, {1}, begin);
  Tensor to = Range(tape, gradients_, entry.begin, entry.begin + end - begin);
  if (offloads()) {
    KeepOnHost(entry, from, to);
  } else if (steps_gradients_ == 0) {
    tape.Run(ops::kCopy, {from}, {to});
  } else {
    tape.Run(ops::kAtenAdd, {to, from}, {to});
  }
}

// To the host and back again, added up on the device; with the last micro-batch its norm, and as
// fp32 to the host (partition_grads, _offload_grad_partition_at_boundary).
void Zero3Optimizer::KeepOnHost(const Entry& entry, const Tensor& from, const Tensor& to) {
  Tape& tape = aten_.tape();
  on_device_ = {};
  if (steps_gradients_ == 0) tape.Copy(from, to);
  on_device_ = aten_.New(dtype_, from.shape());
  tape.Copy(to, on_device_);
  if (steps_gradients_ > 0) {
    tape.Run(ops::kAtenAdd, {on_device_, from}, {on_device_});
    tape.Copy(on_device_, to);
  }
  if (!last_) return;
  Tensor wide = aten_.Scratch(Dtype::kF64, from.shape());
  Tensor norm = aten_.Scratch(Dtype::kF64, {});
  wide = {};
  Tensor square = aten_.Scratch(Dtype::kF64, {});
  norm = {};
  norms_.push_back(aten_.Scratch(Dtype::kF64, {}));
  square = {};
  Tensor single = aten_.New(Dtype::kF32, from.shape());
  tape.Run(ops::kCopy, {on_device_}, {single});
  tape.Copy(single, Range(tape, host_gradients_, entry.begin, entry.begin + from.elements()));
}

void Zero3Optimizer::EndBackward() {
  const Category before = aten_.category();
  aten_.set_category(Category::kCommunication);
  if (in_bucket_ > 0) ReduceBucket();
  // independent_gradient_partition_epilogue: the host waits, too.
  Tape& tape = aten_.tape();
  tape.set_stream(ReduceStream(config_.zero));
  const EventId reduced = tape.Record();
  tape.set_stream(kComputeStream);
  if (config_.zero.overlap_comm) tape.Wait(reduced);
  tape.HostWait(reduced);
  reductions_.clear();
  gatherer_.ReleaseLeftovers();
  aten_.set_category(before);
  ++steps_gradients_;
}

// has_overflow: torch.isinf and isnan of all gradients at once.
void Zero3Optimizer::OverflowScratch() {
  const Dims shape = gradients_.shape();
  Tensor magnitude = aten_.Scratch(dtype_, shape);
  Tensor infinite = aten_.Scratch(Dtype::kU8, shape);
  magnitude = {};
  infinite = {};
  Tensor no_number = aten_.Scratch(Dtype::kU8, shape);
}

// The norm casts one share after the other to fp64.
void Zero3Optimizer::NormScratch() {
  std::vector<Tensor> norms;
  for (const Entry& entry : entries_) {
    Tensor wide = aten_.Scratch(Dtype::kF64, {entry.share});
    norms.push_back(aten_.Scratch(Dtype::kF64, {}));
  }
  norms.clear();
}

void Zero3Optimizer::StepSubGroup(SubGroup& group) {
  Tape& tape = aten_.tape();
  const int64_t elements = group.end - group.begin;
  const OptimizerSettings& s = options_.optimizer;
  const Attrs attrs =
      Attrs::Of(ops::AdamwAttrs{s.lr, s.beta1, s.beta2, s.eps, group.weight_decay});
  Tensor own = Range(tape, offloads() ? host_gradients_ : gradients_, group.begin, group.end);
  Tensor weights = Range(tape, flat_, group.begin, group.end);
  if (offloads()) {
    Tensor staged = tape.Empty(flat_.dtype(), {elements}, Category::kStaging, MemorySpace::kPinned);
    tape.Run(ops::kAdamw, {own, count_},
             {staged, group.exp_avg, group.exp_avg_sq, group.master}, attrs);
    tape.Copy(staged, weights);
    return;
  }
  aten_.set_category(Category::kStaging);
  Tensor joined = own;
  if (group.weights > 1) {
    joined = aten_.New(dtype_, {elements});
    tape.Run(ops::kCopy, {own}, {joined});
  }
  Tensor wide = aten_.New(Dtype::kF32, {elements});
  tape.Run(ops::kCopy, {joined}, {wide});
  joined = {};
  aten_.set_category(Category::kOptimizer);
  if (!group.exp_avg) {
    group.exp_avg = aten_.Full(Dtype::kF32, {elements}, 0);
    group.exp_avg_sq = aten_.Full(Dtype::kF32, {elements}, 0);
  }
  aten_.set_category(Category::kStaging);
  Tensor root;
  if (config_.optimizer_loop != OptimizerLoop::kFused) {
    root = aten_.Scratch(Dtype::kF32, {elements});
  }
  tape.Run(ops::kAdamw, {wide, count_}, {weights, group.exp_avg, group.exp_avg_sq, group.master},
           attrs);
}

// _zero3_consolidated_16bit_state_dict (engine.py): module by module; rank 0 takes what is gathered
// to the host.
void Zero3Optimizer::Save() {
  aten_.set_category(Category::kWeights);
  gatherer_.ReleaseAll();
  std::vector<Tensor> state_dict;
  for (const std::vector<Tensor>& module : modules_) {
    gatherer_.GatherForSave(module);
    for (const Tensor& weight : module) {
      if (options_.rank != 0) break;
      Tensor on_host = aten_.tape().Empty(weight.dtype(), weight.shape(), Category::kWeights,
                                          MemorySpace::kPinned);
      aten_.tape().Copy(weight, on_host);
      state_dict.push_back(std::move(on_host));
    }
    gatherer_.ShareAgain(module);
  }
  gatherer_.GatherPersistent();
  aten_.set_category(Category::kActivations);
}

void Zero3Optimizer::Step() {
  aten_.tape().Run(ops::kOptimizerStep, {}, {count_});
  aten_.set_category(Category::kStaging);
  gatherer_.ReleaseAll();
  if (!offloads()) {
    if (flat_.dtype() == Dtype::kF16) OverflowScratch();  // not for fp32 adapters
    NormScratch();
  }
  for (SubGroup& group : sub_groups_) StepSubGroup(group);
  norms_.clear();
  gatherer_.GatherPersistent();
  aten_.set_category(Category::kActivations);
}

}  // namespace hbmtune::lowering

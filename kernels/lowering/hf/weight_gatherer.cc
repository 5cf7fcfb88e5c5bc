#include "kernels/lowering/hf/weight_gatherer.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>

#include "kernels/lowering/hf/zero.h"

namespace hbmtune::lowering {
namespace {

// The same tensor; `then` runs when its gradient passes.
Tensor OnBackward(Tape& tape, Tensor x, std::string_view name, std::function<void()> then) {
  if (!x || !tape.NeedsGrad({x})) return x;
  Tensor same = tape.Detach(x);
  tape.Attach(name, {x}, same, [then = std::move(then)](std::vector<Tensor> grads) {
    then();
    return grads;
  });
  return same;
}

}  // namespace

void WeightGatherer::Add(const Tensor& parameter, Tensor share, bool persistent) {
  Weight weight;
  weight.parameter = parameter;
  weight.share = std::move(share);
  weight.shape = parameter.shape();
  weight.elements = parameter.elements();
  weight.persistent = persistent;
  weights_.push_back(std::move(weight));
  Partition(weights_.back());
}

void WeightGatherer::SetShare(const Tensor& parameter, Tensor share) {
  Weight& weight = weights_[IndexOf(parameter)];
  weight.share = std::move(share);
  Partition(weight);
}

// The parameter keeps its shape over memory of its share; nobody reads it there.
void WeightGatherer::Partition(Weight& weight) {
  Dims none = weight.shape;
  for (size_t d = 0; d < none.rank(); ++d) none[d] = 0;
  aten_.tape().Rebind(weight.parameter, aten_.tape().ViewOf(weight.share, weight.shape, none));
  weight.status = Status::kShared;
}

void WeightGatherer::Reset() {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (!weights_[i].in_flight) continue;
    WaitFor(i);
    ReleaseWeight(weights_[i]);
  }
  if (!complete_ && !order_.empty()) CompareOrder();
  complete_ = !order_.empty();
  queue_.clear();
  for (size_t step = 0; complete_ && step < order_.size(); ++step) {
    for (size_t weight : order_[step]->weights) {
      queue_.push_back({weight, static_cast<int64_t>(step)});
    }
  }
  for (Weight& weight : weights_) weight.last_use = std::numeric_limits<int64_t>::min();
  if (config_.overlap_comm) {  // the shares are new
    const EventId stepped = aten_.tape().Record();
    OnStream on(aten_.tape(), kGatherStream);
    aten_.tape().Wait(stepped);
  }
  step_ = 0;
  available_elements_ = 0;
}

// reset_step compares with rank 0: modules, their parameters, and the steps of those.
void WeightGatherer::CompareOrder() {
  int64_t uses = 0;
  for (const Module* module : order_) uses += static_cast<int64_t>(module->weights.size());
  const Category before = aten_.category();
  aten_.set_category(Category::kStaging);
  for (int64_t count : {static_cast<int64_t>(order_.size()), uses, uses}) {
    aten_.Scratch(Dtype::kI64, {count});
  }
  aten_.set_category(before);
}

void WeightGatherer::ReleaseLeftovers() {
  fetches_.clear();
  while (!in_backward_.empty()) {
    Module* module = in_backward_.back();
    in_backward_.pop_back();
    std::set<size_t> held = std::move(module->recomputed);
    module->recomputed.clear();
    held.insert(module->weights.begin(), module->weights.end());
    for (size_t i : held) {
      weights_[i].users.erase(module);
      if (!weights_[i].persistent) ReleaseWeight(weights_[i]);
    }
  }
}

void WeightGatherer::ReleaseAll() {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i].in_flight) WaitFor(i);
    weights_[i].users.clear();
    ReleaseWeight(weights_[i]);
  }
}

void WeightGatherer::GatherPersistent() {
  const Category before = aten_.category();
  aten_.set_category(Category::kWeights);
  const bool any = std::any_of(weights_.begin(), weights_.end(),
                               [](const Weight& weight) { return weight.persistent; });
  for (Weight& weight : weights_) {
    if (weight.persistent) GatherNow(weight);
  }
  if (any) Synchronize();
  aten_.set_category(before);
}

// ZeROOrderedDict.__getitem__ and register_external_parameter; the getter works in engine.forward()
// only.
void WeightGatherer::Read(const HookedModule& module, const Tensor& weight) {
  const size_t index = IndexOf(weight);
  if (aten_.in_backward() || weights_[index].status != Status::kShared) return;
  const Category before = aten_.category();
  aten_.set_category(Category::kWeights);
  ModuleOf(module).weights.push_back(index);
  GatherNow(weights_[index]);
  Synchronize();
  aten_.set_category(before);
}

size_t WeightGatherer::Find(const Tensor& parameter) const {
  size_t i = 0;
  while (i < weights_.size() && !weights_[i].parameter.SameTensor(parameter)) ++i;
  return i;
}

size_t WeightGatherer::IndexOf(const Tensor& parameter) const {
  const size_t index = Find(parameter);
  if (index == weights_.size()) throw std::logic_error("a weight that is not partitioned");
  return index;
}

WeightGatherer::Module& WeightGatherer::ModuleOf(const HookedModule& module) {
  auto [found, is_new] = modules_.try_emplace(module.identity);
  if (is_new) {
    for (const Tensor& weight : module.weights) found->second.weights.push_back(IndexOf(weight));
  }
  return found->second;
}

Tensor WeightGatherer::Enter(const HookedModule& module, Tensor input) {
  Module& entered = ModuleOf(module);
  Fetch(entered, true);
  return OnBackward(aten_.tape(), std::move(input), "PostBackwardFunctionModule",
                    [this, &entered] { Release(entered, false); });
}

Tensor WeightGatherer::Leave(const HookedModule& module, Tensor output) {
  Module& left = ModuleOf(module);
  Release(left, true);
  return OnBackward(aten_.tape(), std::move(output), "PreBackwardFunctionForModule",
                    [this, &left] { Fetch(left, false); });
}

// fetch_sub_module
void WeightGatherer::Fetch(Module& module, bool forward) {
  const Category before = aten_.category();
  aten_.set_category(Category::kWeights);
  if (!complete_) order_.push_back(&module);
  if (!forward && std::find(in_backward_.begin(), in_backward_.end(), &module) ==
                      in_backward_.end()) {
    in_backward_.push_back(&module);
  }
  std::vector<size_t> missing;
  for (size_t i : module.weights) {
    if (weights_[i].status == Status::kShared) missing.push_back(i);
  }
  if (!missing.empty()) Gather(missing);
  // A recomputation: frozen weights have no backward hook, so whoever goes backward keeps them.
  const bool again = forward && aten_.in_backward() && !in_backward_.empty();
  for (size_t i : module.weights) {
    weights_[i].users.insert(&module);
    if (again && !weights_[i].parameter.requires_grad()) {
      in_backward_.back()->recomputed.insert(i);
      weights_[i].users.insert(in_backward_.back());
    }
    WaitForFetch(i);
  }
  if (complete_) {
    SkipQueue(module);
    if (config_.prefetch_bucket_size > 0) Prefetch();
  }
  ++step_;
  aten_.set_category(before);
}

// What the module needs is not prefetched any more, unless that was done before.
void WeightGatherer::SkipQueue(const Module& module) {
  const auto needed = std::count_if(module.weights.begin(), module.weights.end(), [&](size_t i) {
    return weights_[i].last_use < step_;
  });
  std::set<size_t> skipped;
  while (!queue_.empty() && static_cast<std::ptrdiff_t>(skipped.size()) < needed) {
    const Use use = queue_.front();
    queue_.pop_front();
    weights_[use.weight].last_use = use.step;
    skipped.insert(use.weight);
  }
}

void WeightGatherer::Prefetch() {
  const int64_t most = std::min(config_.max_live_parameters - available_elements_,
                                config_.prefetch_bucket_size);
  std::set<size_t> ahead;
  int64_t elements = 0;
  while (!queue_.empty() && elements < most) {
    const Use use = queue_.front();
    queue_.pop_front();
    Weight& weight = weights_[use.weight];
    weight.last_use = std::max(weight.last_use, use.step);
    if (weight.status != Status::kShared || !ahead.insert(use.weight).second) continue;
    elements += weight.elements;
  }
  if (!ahead.empty()) Gather({ahead.begin(), ahead.end()});
}

// release_sub_module
void WeightGatherer::Release(Module& module, bool forward) {
  std::set<size_t> held(module.weights.begin(), module.weights.end());
  std::set<size_t> freed = held;
  if (complete_) {
    const std::vector<size_t>& far = Releasable(module);
    freed = {far.begin(), far.end()};
  }
  if (!forward) {
    for (size_t i : module.recomputed) {
      held.insert(i);
      if (!weights_[i].persistent) freed.insert(i);
    }
    module.recomputed.clear();
    std::erase(in_backward_, &module);
  }
  for (size_t i : held) {
    weights_[i].users.erase(&module);
    if (freed.contains(i)) ReleaseWeight(weights_[i]);
  }
}

void WeightGatherer::ReleaseWeight(Weight& weight) {
  if (weight.status != Status::kWhole || !weight.users.empty()) return;
  Partition(weight);
  available_elements_ -= weight.elements;
}

const std::vector<size_t>& WeightGatherer::Releasable(const Module& module) {
  auto [found, is_new] = releasable_.try_emplace({&module, step_});
  for (size_t i : module.weights) {
    if (!is_new) break;
    const Weight& weight = weights_[i];
    // What the prefetcher has passed over would not be fetched again.
    if (weight.persistent || weight.last_use > step_ || NeededSoon(i)) continue;
    found->second.push_back(i);
  }
  return found->second;
}

bool WeightGatherer::NeededSoon(size_t index) const {
  int64_t passed = 0;
  for (auto step = static_cast<size_t>(step_); step < order_.size(); ++step) {
    if (passed >= config_.max_reuse_distance) return false;
    for (size_t i : order_[step]->weights) {
      if (i == index) return true;
      passed += weights_[i].elements;
    }
  }
  return false;
}

}  // namespace hbmtune::lowering

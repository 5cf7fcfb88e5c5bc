#include "kernels/lowering/hf/weight_gatherer.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "kernels/ops/copy/copy.h"

namespace hbmtune::lowering {
namespace {

// The same tensor; `then` runs when its gradient passes.
Tensor OnBackward(Tape& tape, Tensor x, std::string_view name, std::function<void()> then) {
  if (!tape.NeedsGrad({x})) return x;
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
  if (!persistent) Partition(weights_.back());
}

void WeightGatherer::SetShare(const Tensor& parameter, Tensor share) {
  Weight& weight = weights_[IndexOf(parameter)];
  weight.share = std::move(share);
  if (!weight.persistent) Partition(weight);
}

// The parameter keeps its shape over memory of its share; nobody reads it there.
void WeightGatherer::Partition(Weight& weight) {
  Dims none = weight.shape;
  for (size_t d = 0; d < none.rank(); ++d) none[d] = 0;
  aten_.tape().Rebind(weight.parameter, aten_.tape().ViewOf(weight.share, weight.shape, none));
  weight.gathered = false;
}

void WeightGatherer::Reset() {
  complete_ = !order_.empty();
  queue_.clear();
  for (size_t step = 0; complete_ && step < order_.size(); ++step) {
    if (order_[step] != kNone) queue_.push_back({order_[step], static_cast<int64_t>(step)});
  }
  for (Weight& weight : weights_) weight.last_use = std::numeric_limits<int64_t>::min();
  step_ = 0;
  available_elements_ = 0;
}

void WeightGatherer::ReleaseAll() {
  for (Weight& weight : weights_) {
    weight.in_flight = {};
    if (weight.gathered && !weight.persistent) Partition(weight);
  }
}

size_t WeightGatherer::IndexOf(const Tensor& parameter) const {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i].parameter.SameTensor(parameter)) return i;
  }
  throw std::logic_error("a weight that is not partitioned");
}

Tensor WeightGatherer::Enter(const Tensor& weight, Tensor input) {
  const size_t index = IndexOf(weight);
  Fetch(index);
  return OnBackward(aten_.tape(), std::move(input), "PostBackwardFunctionModule",
                    [this, index] { Release(index); });
}

Tensor WeightGatherer::Leave(const Tensor& weight, Tensor output) {
  const size_t index = IndexOf(weight);
  Release(index);
  return OnBackward(aten_.tape(), std::move(output), "PreBackwardFunctionForModule",
                    [this, index] { Fetch(index); });
}

Tensor WeightGatherer::LeaveContainer(Tensor output) {
  return OnBackward(aten_.tape(), std::move(output), "PreBackwardFunctionForModule",
                    [this] { Fetch(kNone); });
}

// fetch_sub_module
void WeightGatherer::Fetch(size_t weight) {
  const Category before = aten_.category();
  aten_.set_category(Category::kWeights);
  if (!complete_) order_.push_back(weight);
  if (weight != kNone) {
    if (!weights_[weight].gathered && !weights_[weight].persistent) Gather({weight});
    WaitFor(weight);
  }
  if (complete_) {
    if (weight != kNone) SkipQueue(weight);
    if (config_.prefetch_bucket_size > 0) Prefetch();
  }
  ++step_;
  aten_.set_category(before);
}

// What the module needs is not prefetched any more, unless that was done before.
void WeightGatherer::SkipQueue(size_t weight) {
  if (weights_[weight].last_use >= step_) return;
  while (!queue_.empty()) {
    const Use use = queue_.front();
    queue_.pop_front();
    weights_[use.weight].last_use = use.step;
    if (use.weight == weight) return;
  }
}

void WeightGatherer::Prefetch() {
  const int64_t most = std::min(config_.max_live_parameters - available_elements_,
                                config_.prefetch_bucket_size);
  std::vector<size_t> ahead;
  int64_t elements = 0;
  while (!queue_.empty() && elements < most) {
    const Use use = queue_.front();
    queue_.pop_front();
    Weight& weight = weights_[use.weight];
    weight.last_use = std::max(weight.last_use, use.step);
    if (weight.gathered || weight.persistent) continue;
    if (std::find(ahead.begin(), ahead.end(), use.weight) != ahead.end()) continue;
    ahead.push_back(use.weight);
    elements += weight.elements;
  }
  if (!ahead.empty()) Gather(ahead);
}

void WeightGatherer::Gather(const std::vector<size_t>& weights) {
  Tape& tape = aten_.tape();
  auto handle = std::make_shared<Handle>();
  handle->weights = weights;
  int64_t elements = 0;
  for (size_t i : weights) elements += weights_[i].share.elements() * ranks_;
  OnStream on(tape, kCommStream);
  handle->flat = aten_.New(weights_[weights[0]].parameter.dtype(), {elements});
  tape.Collective(CollectiveKind::kAllGather, handle->flat, handle->flat);
  for (size_t i : weights) {
    weights_[i].gathered = true;
    weights_[i].in_flight = handle;
    available_elements_ += weights_[i].elements;
  }
}

void WeightGatherer::WaitFor(size_t index) {
  const std::shared_ptr<Handle> handle = std::move(weights_[index].in_flight);
  weights_[index].in_flight = nullptr;
  if (!handle) return;
  Tape& tape = aten_.tape();
  if (!handle->copied) {
    handle->copied = true;
    OnStream on(tape, kCommStream);
    for (size_t i : handle->weights) {
      Weight& weight = weights_[i];
      Tensor whole = handle->flat;
      if (handle->weights.size() > 1) {
        whole = aten_.New(weight.parameter.dtype(), weight.shape);
        tape.Run(ops::kCopy, {tape.ViewOf(handle->flat, weight.shape, whole.strides())}, {whole});
      }
      tape.Rebind(weight.parameter,
                  tape.ViewOf(whole, weight.shape, DenseStrides(weight.shape)));
    }
    const EventId gathered = tape.Record();
    tape.set_stream(kComputeStream);
    tape.Wait(gathered);
  }
  tape.UseOnCurrentStream(weights_[index].parameter);
}

// release_sub_module
void WeightGatherer::Release(size_t index) {
  Weight& weight = weights_[index];
  if (weight.persistent || !weight.gathered) return;
  if (complete_ && (weight.last_use > step_ || NeededSoon(index))) return;
  Partition(weight);
  available_elements_ -= weight.elements;
}

bool WeightGatherer::NeededSoon(size_t index) const {
  int64_t passed = 0;
  for (auto step = static_cast<size_t>(step_); step < order_.size(); ++step) {
    if (passed >= config_.max_reuse_distance) return false;
    if (order_[step] == kNone) continue;
    if (order_[step] == index) return true;
    passed += weights_[order_[step]].elements;
  }
  return false;
}

}  // namespace hbmtune::lowering

#include "kernels/lowering/hf/ddp.h"

#include <algorithm>
#include <limits>

#include "kernels/core/units.h"
#include "kernels/ops/copy/copy.h"

namespace hbmtune::lowering {
namespace {

constexpr int64_t kBroadcastBytes = 250 * kMiB;   // broadcast_bucket_size
constexpr int64_t kFirstBucketBytes = kMiB;       // kDefaultFirstBucketBytes
constexpr int64_t kDefaultBucketMb = 25;          // kDefaultBucketBytesCap
constexpr size_t kBroadcastsInFlight = 2;

// reducer.cpp, compute_bucket_assignment_by_size: by dtype, closed at or over the limit; the first
// limit counts for the first bucket of a dtype, the last for all that follow. In order of each
// bucket's first tensor where `by_first` is set.
std::vector<std::vector<size_t>> Assign(const std::vector<Tensor>& tensors,
                                        const std::vector<int64_t>& limits, bool by_first) {
  struct Open {
    Dtype dtype;
    std::vector<size_t> indices;
    int64_t bytes = 0;
    size_t limit = 0;
  };
  std::vector<Open> open;
  std::vector<std::vector<size_t>> buckets;
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto found = std::find_if(open.begin(), open.end(),
                              [&](const Open& o) { return o.dtype == tensors[i].dtype(); });
    if (found == open.end()) found = open.insert(open.end(), {tensors[i].dtype(), {}});
    found->indices.push_back(i);
    found->bytes += tensors[i].bytes();
    if (found->bytes < limits[found->limit]) continue;
    buckets.push_back(std::move(found->indices));
    found->indices.clear();
    found->bytes = 0;
    found->limit = std::min(found->limit + 1, limits.size() - 1);
  }
  for (Open& o : open) {
    if (!o.indices.empty()) buckets.push_back(std::move(o.indices));
  }
  if (by_first) std::sort(buckets.begin(), buckets.end());
  return buckets;
}

}  // namespace

Ddp::Ddp(Aten& aten, const DdpConfig& config, const HfOptions& options,
         std::vector<HfParameter>& parameters, const std::vector<Tensor>& buffers)
    : aten_(aten), config_(config), options_(options), buffers_(buffers) {
  for (HfParameter& parameter : parameters) {
    if (parameter.trained) entries_.push_back({&parameter});
  }
  aten_.set_category(Category::kCommunication);
  VerifyShapes();
  std::vector<Tensor> states;
  for (const HfParameter& parameter : parameters) states.push_back(parameter.tensor);
  states.insert(states.end(), buffers_.begin(), buffers_.end());
  Broadcast(states);
  std::vector<size_t> order;
  for (size_t i = 0; i < entries_.size(); ++i) order.push_back(i);
  MakeBuckets(order, {std::numeric_limits<int64_t>::max()});
  aten_.set_category(Category::kActivations);
}

// verify_params_across_processes: a count, gathered from two ranks, and extents with strides.
void Ddp::VerifyShapes() {
  int64_t numbers = 0;
  for (const Entry& entry : entries_) {
    numbers += 2 * static_cast<int64_t>(entry.parameter->tensor.shape().rank());
  }
  Tensor count = aten_.Scratch(Dtype::kI64, {1});
  Tensor first = aten_.Scratch(Dtype::kI64, {1});
  Tensor second = aten_.Scratch(Dtype::kI64, {1});
  Tensor shapes = aten_.Scratch(Dtype::kI64, {numbers});
  shapes = {};
  first = {};
  second = {};
  count = {};
}

// broadcast_coalesced: flattened copies, two on their way at a time.
void Ddp::Broadcast(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> in_flight;
  for (const auto& indices : Assign(tensors, {kBroadcastBytes}, true)) {
    int64_t elements = 0;
    for (size_t i : indices) elements += tensors[i].elements();
    Tensor flat = aten_.Scratch(tensors[indices[0]].dtype(), {elements});
    aten_.tape().Collective(CollectiveKind::kBroadcast, flat, flat);
    in_flight.push_back(std::move(flat));
    if (in_flight.size() < kBroadcastsInFlight) continue;
    in_flight.erase(in_flight.begin());
  }
  while (!in_flight.empty()) in_flight.erase(in_flight.begin());
}

void Ddp::MakeBuckets(const std::vector<size_t>& order, const std::vector<int64_t>& limits) {
  std::vector<Tensor> tensors;
  for (size_t i : order) tensors.push_back(entries_[i].parameter->tensor);
  for (const auto& indices : Assign(tensors, limits, !rebuilt_)) {
    Bucket bucket;
    int64_t elements = 0;
    for (size_t i : indices) {
      Entry& entry = entries_[order[i]];
      entry.bucket = buckets_.size();
      entry.begin = elements;
      elements += tensors[i].elements();
      bucket.entries.push_back(order[i]);
    }
    bucket.flat = aten_.New(tensors[indices[0]].dtype(), {elements});
    buckets_.push_back(std::move(bucket));
  }
}

// rebuild_buckets: indices and sizes go to the other ranks, then old buckets give way to new ones.
void Ddp::RebuildBuckets() {
  rebuilt_ = true;
  std::vector<int64_t> limits = {config_.bucket_cap_mb * kMiB};
  if (options_.default_buckets && config_.bucket_cap_mb == kDefaultBucketMb) {
    limits.insert(limits.begin(), kFirstBucketBytes);
  }
  std::vector<Tensor> tensors;
  for (size_t i : ready_order_) tensors.push_back(entries_[i].parameter->tensor);
  const auto count = static_cast<int64_t>(Assign(tensors, limits, false).size());
  Tensor indices =
      aten_.Scratch(Dtype::kI32, {static_cast<int64_t>(entries_.size()) + 1});
  Tensor sizes = aten_.Scratch(Dtype::kI32, {count});
  sizes = {};
  indices = {};
  buckets_.clear();
  MakeBuckets(ready_order_, limits);
}

void Ddp::BeginForward(bool syncs) {
  syncs_ = syncs;
  const Category before = aten_.category();
  aten_.set_category(Category::kCommunication);
  const bool trains = aten_.tape().grad_enabled();
  if (trains && !rebuilt_ && ready_order_.size() == entries_.size()) RebuildBuckets();
  if (broadcasts_buffers_ && !buffers_.empty()) Broadcast(buffers_);
  broadcasts_buffers_ = trains && syncs;
  aten_.set_category(before);
}

void Ddp::OnGradient(Tensor& leaf) {
  if (!syncs_) return;
  auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.parameter->tensor.SameTensor(leaf);
  });
  if (entry == entries_.end()) return;  // the input of a recomputed block
  if (!rebuilt_) ready_order_.push_back(static_cast<size_t>(entry - entries_.begin()));
  Tape& tape = aten_.tape();
  Bucket& bucket = buckets_[entry->bucket];
  Tensor slot =
      tape.ViewOf(bucket.flat, leaf.shape(), DenseStrides(leaf.shape()), entry->begin);
  if (leaf.grad().storage() != slot.storage()) {
    tape.Run(ops::kCopy, {leaf.grad()}, {slot});
    if (config_.gradient_as_bucket_view) leaf.set_grad(slot);
  }
  if (++bucket.ready == bucket.entries.size()) Reduce(bucket);
}

void Ddp::Reduce(Bucket& bucket) {
  Tape& tape = aten_.tape();
  const EventId filled = tape.Record();
  OnStream on(tape, kCommStream);
  tape.Wait(filled);
  tape.Collective(CollectiveKind::kAllReduce, bucket.flat, bucket.flat);
  reduced_.push_back(tape.Record());
}

// finalize_backward: the sums go back to where gradients are.
void Ddp::EndBackward() {
  if (!syncs_) return;
  Tape& tape = aten_.tape();
  for (EventId event : reduced_) tape.Wait(event);
  reduced_.clear();
  for (Bucket& bucket : buckets_) {
    bucket.ready = 0;
    if (config_.gradient_as_bucket_view) continue;
    for (size_t i : bucket.entries) {
      const Tensor& leaf = entries_[i].parameter->tensor;
      Tensor slot =
          tape.ViewOf(bucket.flat, leaf.shape(), DenseStrides(leaf.shape()), entries_[i].begin);
      tape.Run(ops::kCopy, {slot}, {leaf.grad()});
    }
  }
}

}  // namespace hbmtune::lowering

#include <algorithm>
#include <set>

#include "kernels/lowering/hf/weight_gatherer.h"
#include "kernels/lowering/hf/zero.h"
#include "kernels/ops/copy/copy.h"

// Stage 3's all-gathers: streams, events, and what the host waits for.
namespace hbmtune::lowering {

// _allgather_params_coalesced and _sequential end with the whole device's work.
void WeightGatherer::Synchronize() {
  Tape& tape = aten_.tape();
  std::set<StreamId> streams{kComputeStream, GatherStream(config_), ReduceStream(config_)};
  for (StreamId stream : streams) {
    OnStream on(tape, stream);
    tape.HostWait(tape.Record());
  }
  fetches_.clear();
}

void WeightGatherer::Collect(CollectiveKind kind, const Tensor& from, const Tensor& to) {
  Tape& tape = aten_.tape();
  if (last_collective_ && last_stream_ != tape.stream()) tape.Wait(*last_collective_);
  tape.Collective(kind, from, to);
  if (!config_.overlap_comm) return;
  last_collective_ = tape.Record();
  last_stream_ = tape.stream();
}

void WeightGatherer::GatherForSave(const std::vector<Tensor>& weights) {
  for (const Tensor& weight : weights) GatherNow(weights_[IndexOf(weight)]);
  Synchronize();
}

// Rank 0's are sent out again first, as it might have changed them.
void WeightGatherer::ShareAgain(const std::vector<Tensor>& weights) {
  for (const Tensor& weight : weights) {
    Collect(CollectiveKind::kBroadcast, weight, weight);
  }
  for (const Tensor& weight : weights) {
    Weight& whole = weights_[IndexOf(weight)];
    const int64_t begin = std::min(rank_ * whole.share.elements(), whole.elements);
    const int64_t count = std::min(whole.share.elements(), whole.elements - begin);
    if (count > 0) {
      aten_.tape().Run(ops::kCopy, {Range(aten_.tape(), weight, begin, begin + count)},
                       {Range(aten_.tape(), whole.share, 0, count)});
    }
    Partition(whole);
  }
}

void WeightGatherer::GatherNow(Weight& weight) {
  Tape& tape = aten_.tape();
  Tensor whole = aten_.New(weight.share.dtype(), {weight.share.elements() * ranks_});
  Collect(CollectiveKind::kAllGather, weight.share, whole);
  tape.Rebind(weight.parameter, tape.ViewOf(whole, weight.shape, DenseStrides(weight.shape)));
  weight.status = Status::kWhole;
}

void WeightGatherer::Gather(const std::vector<size_t>& weights) {
  Tape& tape = aten_.tape();
  auto handle = std::make_shared<Handle>();
  handle->weights = weights;
  std::map<Dtype, int64_t> elements;  // of one rank
  for (size_t i : weights) elements[weights_[i].share.dtype()] += weights_[i].share.elements();
  OnStream on(tape, GatherStream(config_));
  for (const auto& [dtype, count] : elements) {
    Tensor& flat = handle->flats[dtype] = aten_.New(dtype, {count * ranks_});
    Tensor own = Range(tape, flat, rank_ * count, (rank_ + 1) * count);
    int64_t begin = 0;
    for (size_t i : weights) {
      const Tensor& share = weights_[i].share;
      if (share.dtype() != dtype) continue;
      if (weights.size() == 1) {
        own = share;
      } else {
        tape.Run(ops::kCopy, {share}, {Range(tape, own, begin, begin + share.elements())});
      }
      begin += share.elements();
    }
    Collect(CollectiveKind::kAllGather, own, flat);
  }
  for (size_t i : weights) {
    weights_[i].status = Status::kInFlight;
    weights_[i].in_flight = handle;
    available_elements_ += weights_[i].elements;
  }
}

void WeightGatherer::CopyWhole(const Weight& weight, const Tensor& flat, int64_t begin,
                               const Tensor& whole) {
  Tape& tape = aten_.tape();
  const int64_t share = weight.share.elements(), stride = flat.elements() / ranks_;
  const bool even = share * ranks_ == weight.elements;
  for (int64_t rank = 0; rank < (even ? 1 : ranks_); ++rank) {
    const int64_t count = even ? share : std::min(share, weight.elements - rank * share);
    if (count <= 0) break;
    const Dims shape{even ? ranks_ : 1, count};
    tape.Run(ops::kCopy, {tape.ViewOf(flat, shape, {stride, 1}, rank * stride + begin)},
             {tape.ViewOf(whole, shape, {share, 1}, rank * share)});
  }
}

// The host runs ahead of the gathers by three weights at most (max_ongoing_fetch_events is 2, and
// one more may be queued). It does not wait for the compute stream here.
void WeightGatherer::WaitForFetch(size_t weight) {
  constexpr size_t kMostFetches = 2;
  if (!weights_[weight].in_flight) return WaitFor(weight);
  Tape& tape = aten_.tape();
  if (fetches_.size() > kMostFetches) {
    tape.HostWait(fetches_.front());
    fetches_.pop_front();
  }
  WaitFor(weight);
  OnStream on(tape, GatherStream(config_));
  fetches_.push_back(tape.Record());
}

void WeightGatherer::WaitFor(size_t index) {
  const std::shared_ptr<Handle> handle = std::move(weights_[index].in_flight);
  weights_[index].in_flight = nullptr;
  if (!handle) return;
  Tape& tape = aten_.tape();
  if (!handle->copied) {
    handle->copied = true;
    OnStream on(tape, GatherStream(config_));
    std::map<Dtype, int64_t> begin;
    for (size_t i : handle->weights) {
      Weight& weight = weights_[i];
      const Dtype dtype = weight.share.dtype();
      Tensor whole = handle->flats.at(dtype);
      if (handle->weights.size() > 1) {
        whole = aten_.New(dtype, weight.shape);
        CopyWhole(weight, handle->flats.at(dtype), begin[dtype], whole);
        begin[dtype] += weight.share.elements();
      }
      tape.Rebind(weight.parameter,
                  tape.ViewOf(whole, weight.shape, DenseStrides(weight.shape)));
      weight.status = Status::kWhole;
    }
    if (config_.overlap_comm) {
      const EventId gathered = tape.Record();
      tape.set_stream(kComputeStream);
      tape.Wait(gathered);
    }
  }
  tape.UseOnCurrentStream(weights_[index].parameter);
}

}  // namespace hbmtune::lowering

#include <algorithm>

#include "kernels/lowering/hf/zero.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/copy/copy.h"

// Stages 1 and 2 while the backward pass runs: gradients into buckets, buckets to their ranks.
namespace hbmtune::lowering {

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
  if (bucket_ || !contiguous()) return;
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

// Into the bucket, which is reduced first if there is no room. What is larger than a bucket stays
// where it is until the next one comes.
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
  } else if (offloads()) {  // storage of its own, that the copy to the host may outlive
    Tensor clone = aten_.New(dtype_, leaf.shape());
    tape.Run(ops::kCopy, {gradient}, {clone});
    gradient = std::move(clone);
  }
  leaf.set_grad({});
  in_bucket_ += elements;
  pieces_.push_back({&entry, std::move(gradient)});
}

// allreduce_and_scatter: slices of neighbouring gradients that go to one rank are one; some of
// them are joined until they are more than a bucket. A single slice is reduced where it lies.
std::vector<int64_t> ZeroOptimizer::JoinedElements() const {
  if (!contiguous()) {
    return pieces_.size() > 1 ? std::vector<int64_t>{in_bucket_} : std::vector<int64_t>{};
  }
  if (!config_.zero.reduce_scatter) return {};
  std::vector<std::pair<int64_t, int64_t>> slices;  // rank, elements
  for (const Piece& piece : pieces_) {
    const int64_t part = groups_[piece.entry->group].part;
    for (int64_t at = piece.entry->begin; at < piece.entry->end;) {
      const int64_t rank = at / part, next = std::min(piece.entry->end, (rank + 1) * part);
      if (slices.empty() || slices.back().first != rank) slices.push_back({rank, 0});
      slices.back().second += next - at;
      at = next;
    }
  }
  std::vector<int64_t> joined;
  int64_t count = 0, elements = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    ++count;
    elements += slices[i].second;
    if (elements <= config_.zero.reduce_bucket_size && i + 1 < slices.size()) continue;
    if (count > 1) joined.push_back(elements);
    count = elements = 0;
  }
  return joined;
}

void ZeroOptimizer::ReduceBucket() {
  Tape& tape = aten_.tape();
  if (config_.zero.overlap_comm && config_.zero.stage > 1) retired_.clear();
  if (ranks_ > 1) {
    const CollectiveKind kind = config_.zero.reduce_scatter ? CollectiveKind::kReduceScatter
                                                            : CollectiveKind::kAllReduce;
    const std::vector<int64_t> joined = JoinedElements();
    for (int64_t elements : joined) {
      Tensor flat = aten_.Scratch(dtype_, {elements});
      tape.Collective(kind, flat, flat);
    }
    if (joined.empty()) {
      const bool in_place = bucket_ && in_bucket_ <= config_.zero.reduce_bucket_size;
      const Tensor whole = in_place ? Range(tape, bucket_, 0, in_bucket_) : pieces_[0].gradient;
      tape.Collective(kind, whole, whole);
    }
  }
  for (Piece& piece : pieces_) {
    KeepOwn(piece);
    Retire(piece);
  }
  while (!pieces_.empty()) pieces_.pop_back();  // as Python clears a list
  in_bucket_ = 0;
}

// Stage 1 lets go of gradients at the end of the backward pass; stage 2 at once, but with
// overlap_comm and no buckets when the reduction is known to be over.
void ZeroOptimizer::Retire(Piece& piece) {
  const auto [begin, end] = Own(*piece.entry);
  const bool copied = begin < end && contiguous();
  const bool late = config_.zero.stage < 2 ||
                    (config_.zero.overlap_comm && !contiguous());
  if (late && !copied) retired_.push_back(piece.gradient);
  if (copied) piece.gradient = {};
}

void ZeroOptimizer::KeepOwn(const Piece& piece) {
  const auto [begin, end] = Own(*piece.entry);
  if (begin == end) return;
  Tape& tape = aten_.tape();
  Group& group = groups_[piece.entry->group];
  Tensor from = tape.ViewOf(piece.gradient, {end - begin}, {1}, begin - piece.entry->begin);
  const int64_t in_part = begin - PartBegin(group);
  if (offloads()) {
    KeepOnHost(from, Range(tape, group.host_staging, in_part, in_part + end - begin));
    return;
  }
  if (!contiguous()) {
    group.whole[piece.entry - group.entries.data()] = piece.gradient;
    return;
  }
  MakeOwnGradients();
  const int64_t offset = OwnOffset(piece.entry->group) + in_part;
  tape.Run(ops::kCopy, {from}, {Range(tape, own_gradients_, offset, offset + end - begin)});
}

// copy_grads_in_partition: with the last micro-batch its norm, and as fp32 to the host.
void ZeroOptimizer::KeepOnHost(const Tensor& from, const Tensor& to) {
  aten_.tape().Copy(from, to);
  if (!last_) return;
  Tensor wide = aten_.Scratch(Dtype::kF64, from.shape());
  norms_.push_back(aten_.Scratch(Dtype::kF64, {}));
  wide = {};
  aten_.Scratch(Dtype::kF32, from.shape());
}

// Where a group's share lies in the one tensor of all groups.
int64_t ZeroOptimizer::OwnOffset(size_t group) const {
  int64_t offset = 0;
  for (size_t g = 0; g < group; ++g) offset += groups_[g].part;
  return offset;
}

// Parameters that lie in this rank's share in part have room as a whole.
void ZeroOptimizer::MakeOwnGradients() {
  if (own_gradients_) return;
  int64_t elements = 0, least = 0;
  for (const Group& group : groups_) {
    least += group.part;
    for (const Entry& entry : group.entries) {
      const auto [begin, end] = Own(entry);
      if (begin < end) elements += entry.end - entry.begin;
    }
  }
  const Category before = aten_.category();
  aten_.set_category(Category::kGradients);
  own_gradients_ = aten_.New(dtype_, {std::max(elements, least)});
  aten_.set_category(before);
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
  retired_.clear();
  bucket_ = {};
  second_bucket_ = {};
  aten_.set_category(Category::kActivations);
  if (offloads()) {
    for (Group& group : groups_) {
      tape.Run(ops::kCopy, {group.host_staging}, {group.host_grad});
    }
  }
  Accumulate();
}

// The first micro-step's gradients are kept, later ones added to them.
void ZeroOptimizer::Accumulate() {
  auto add = [this](Tensor& sum, Tensor& own) {
    if (own && sum) {
      aten_.tape().Run(ops::kAtenAdd, {sum, own}, {sum});
    } else if (own) {
      sum = own;
    }
    own = {};
  };
  add(accumulated_, own_gradients_);
  for (Group& group : groups_) {
    for (size_t i = 0; i < group.whole.size(); ++i) add(group.accumulated[i], group.whole[i]);
  }
}

}  // namespace hbmtune::lowering

#include "kernels/lowering/fused/data_parallel.h"

#include "kernels/lowering/fused/on_stream.h"
#include "kernels/ops/add/add.h"
#include "kernels/ops/copy/copy.h"

namespace hbmtune::lowering {

DataParallel::DataParallel(Context& context, const Partition& partition, GatherOrder gathers)
    : context_(context), partition_(partition), weights_(context, partition, std::move(gathers)) {
  if (partition.ranks == 1) return;
  context.parameters.set_on_gradient([this](Parameter& p) { OnGradient(p); });
}

void DataParallel::BeginBackward(bool last) {
  weights_.Begin();
  reducing_ = partition_.ranks > 1 && (last || partition_.stage >= 2);
}

void DataParallel::OnGradient(Parameter& parameter) {
  if (!reducing_) return;
  open_.members.push_back(&parameter);
  open_.elements += parameter.elements();
  if (open_.elements >= context_.config.zero.reduce_bucket_size) Launch();
}

void DataParallel::EndBackward() {
  if (!reducing_) return;
  // A first layer whose input needs no gradient (adapters) has no node that ends its weights.
  weights_.End();
  context_.tape.Phase(PhaseKind::kReduce);
  if (!open_.members.empty()) Launch();
  for (Bucket& bucket : travelling_) Unpack(bucket);
  travelling_.clear();
  reducing_ = false;
}

void DataParallel::EndStep() {
  for (Parameter& parameter : context_.parameters.all()) parameter.part_gradient = {};
}

// --- reduction --------------------------------------------------------------------------------

void DataParallel::Launch() {
  Bucket bucket = std::exchange(open_, {});
  if (partition_.stage == 0) {
    ReduceWhole(bucket);
  } else {
    ReduceParts(bucket);
  }
  const size_t most = bucket.on_comm_stream ? 2 : 1;
  travelling_.push_back(std::move(bucket));
  while (travelling_.size() >= most) {
    Unpack(travelling_.front());
    travelling_.pop_front();
  }
}

template <class Collectives>
void DataParallel::Travel(Bucket& bucket, Collectives collectives) {
  Tape& tape = context_.tape;
  if (!context_.config.zero.overlap_comm) {
    collectives();
    return;
  }
  const EventId packed = tape.Record();
  OnStream comm(tape, kCommStream);
  tape.Wait(packed);
  collectives();
  bucket.done = tape.Record();
  bucket.on_comm_stream = true;
}

void DataParallel::Collect(CollectiveKind kind, const Tensor& from, const Tensor& to) {
  Bucket alone;
  Travel(alone, [&] { context_.tape.Collective(kind, from, to); });
  if (alone.on_comm_stream) context_.tape.Wait(alone.done);
}

void DataParallel::ReduceWhole(Bucket& bucket) {
  Tape& tape = context_.tape;
  const bool contiguous = context_.config.zero.contiguous_gradients;
  if (contiguous) {
    bucket.buffer = tape.Empty(bucket.members[0]->gradient.dtype(), {bucket.elements},
                               Category::kCommunication);
  }
  int64_t begin = 0;
  for (Parameter* member : bucket.members) {
    if (!contiguous) break;
    Tensor slice = tape.ViewOf(bucket.buffer, member->shape, DenseStrides(member->shape), begin);
    tape.Run(ops::kCopy, {member->gradient}, {slice});
    bucket.reduced.push_back(std::move(slice));
    begin += member->elements();
  }
  Travel(bucket, [&] {
    if (contiguous) {
      tape.Collective(CollectiveKind::kAllReduce, bucket.buffer, bucket.buffer);
      return;
    }
    for (Parameter* member : bucket.members) {
      tape.Collective(CollectiveKind::kAllReduce, member->gradient, member->gradient);
    }
  });
}

void DataParallel::ReduceParts(Bucket& bucket) {
  Tape& tape = context_.tape;
  const ZeroConfig& zero = context_.config.zero;
  int64_t width = 0;
  for (Parameter* member : bucket.members) width += partition_.PartElements(member->elements());
  const Dtype dtype = bucket.members[0]->gradient.dtype();
  bucket.buffer = tape.Empty(dtype, {partition_.ranks, width}, Category::kCommunication);
  int64_t column = 0;
  for (Parameter* member : bucket.members) {
    CopyParts(member->gradient, bucket.buffer, column, true);
    context_.parameters.EndGradient(*member);
    column += partition_.PartElements(member->elements());
  }
  Tensor& row = bucket.row;
  if (zero.reduce_scatter) {
    row = tape.Empty(dtype, {width}, Category::kCommunication);
  } else {
    row = tape.ViewOf(bucket.buffer, {width}, {1}, partition_.rank * width);
  }
  Travel(bucket, [&] {
    if (zero.reduce_scatter) {
      tape.Collective(CollectiveKind::kReduceScatter, bucket.buffer, row);
    } else {
      tape.Collective(CollectiveKind::kAllReduce, bucket.buffer, bucket.buffer);
    }
  });
  column = 0;
  for (Parameter* member : bucket.members) {
    const int64_t own = partition_.OwnElements(member->elements(), partition_.rank);
    bucket.reduced.push_back(own == 0 ? Tensor{} : tape.ViewOf(row, {own}, {1}, column));
    column += partition_.PartElements(member->elements());
  }
}

void DataParallel::Unpack(Bucket& bucket) {
  Tape& tape = context_.tape;
  if (bucket.on_comm_stream) tape.Wait(bucket.done);
  for (size_t i = 0; i < bucket.reduced.size(); ++i) {
    Tensor reduced = std::move(bucket.reduced[i]);
    if (!reduced) continue;
    Parameter& member = *bucket.members[i];
    if (partition_.stage == 0) {
      tape.Run(ops::kCopy, {reduced}, {member.gradient});
    } else if (member.part_gradient) {
      tape.Run(ops::kAddInPlace, {member.part_gradient, reduced}, {member.part_gradient});
    } else {
      member.part_gradient = tape.Empty(reduced.dtype(), reduced.shape(), Category::kGradients);
      tape.Run(ops::kCopy, {reduced}, {member.part_gradient});
    }
  }
  bucket.buffer = bucket.row = {};
}

void DataParallel::CopyParts(const Tensor& whole, const Tensor& matrix, int64_t column,
                             bool to_matrix) {
  Tape& tape = context_.tape;
  const int64_t elements = whole.elements();
  const int64_t part = partition_.PartElements(elements);
  const int64_t rows = elements / part;
  const int64_t rest = elements - rows * part;
  const int64_t width = matrix.strides()[0];
  auto copy = [&](const Tensor& a, const Tensor& b) {
    to_matrix ? tape.Run(ops::kCopy, {a}, {b}) : tape.Run(ops::kCopy, {b}, {a});
  };
  if (rows > 0) {
    copy(tape.ViewOf(whole, {rows, part}, {part, 1}),
         tape.ViewOf(matrix, {rows, part}, {width, 1}, column));
  }
  if (rest == 0) return;
  copy(tape.ViewOf(whole, {rest}, {1}, rows * part),
       tape.ViewOf(matrix, {rest}, {1}, rows * width + column));
}

// --- weights ----------------------------------------------------------------------------------

void DataParallel::GatherWeights() {
  if (partition_.stage == 0) return;
  Tape& tape = context_.tape;
  std::vector<Parameter*> members;
  int64_t elements = 0, width = 0;
  auto flush = [&] {
    if (members.empty()) return;
    const Dtype dtype = members[0]->weight.dtype();
    Tensor own = tape.Empty(dtype, {width}, Category::kCommunication);
    Tensor all = tape.Empty(dtype, {partition_.ranks, width}, Category::kCommunication);
    int64_t column = 0;
    for (Parameter* member : members) {
      if (member->part.elements() > 0) {
        tape.Run(ops::kCopy, {member->part},
                 {tape.ViewOf(own, member->part.shape(), {1}, column)});
      }
      column += partition_.PartElements(member->elements());
    }
    Collect(CollectiveKind::kAllGather, own, all);
    own = {};
    column = 0;
    for (Parameter* member : members) {
      CopyParts(member->weight, all, column, false);
      column += partition_.PartElements(member->elements());
    }
    members.clear();
    elements = width = 0;
  };
  for (Parameter& parameter : context_.parameters.all()) {
    if (!parameter.trainable || !parameter.resident) continue;
    members.push_back(&parameter);
    elements += parameter.elements();
    width += partition_.PartElements(parameter.elements());
    if (elements >= context_.config.zero.allgather_bucket_size) flush();
  }
  flush();
}

void DataParallel::Gather(Parameter& parameter) { weights_.Need(parameter); }

void DataParallel::Release(Parameter& parameter) { weights_.Release(parameter); }

void DataParallel::GatherLayer(int64_t layer) {
  for (Parameter& parameter : context_.parameters.all()) {
    if (parameter.layer == layer) Gather(parameter);
  }
}

void DataParallel::ReleaseLayer(int64_t layer) {
  for (Parameter& parameter : context_.parameters.all()) {
    if (parameter.layer == layer) Release(parameter);
  }
}

void Gather(Context& context, Parameter& parameter) {
  if (context.data_parallel != nullptr) context.data_parallel->Gather(parameter);
}

void Release(Context& context, Parameter& parameter) {
  if (context.data_parallel != nullptr) context.data_parallel->Release(parameter);
}

void DataParallel::AllReduce(const Tensor& tensor) {
  if (partition_.ranks == 1) return;
  Collect(CollectiveKind::kAllReduce, tensor, tensor);
}

void DataParallel::AllGatherRows(const Tensor& all) {
  const int64_t width = all.strides()[0];
  Collect(CollectiveKind::kAllGather,
          context_.tape.ViewOf(all, {width}, {1}, partition_.rank * width), all);
}

}  // namespace hbmtune::lowering

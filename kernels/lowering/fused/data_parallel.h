#pragma once

#include <deque>
#include <vector>

#include "kernels/lowering/fused/context.h"
#include "kernels/lowering/fused/gathered_weights.h"

namespace hbmtune::lowering {

// What ranks say to each other (DeepSpeed's ZeRO, stage 0 being plain data parallelism). Gradients
// are reduced in buckets as the backward pass completes them: in stages 0 and 1 in the last
// micro-batch, from stage 2 in each. Every tensor is cut into equal parts (Partition), so that a
// bucket is a matrix [ranks, width] and its reduce-scatter gives each rank its part of every
// member. With overlap_comm buckets travel on a stream of their own, two at a time.
class DataParallel {
 public:
  // `gathers`: in which order a micro-batch needs weights (stage 3), as a dry run found; or empty.
  DataParallel(Context& context, const Partition& partition, GatherOrder gathers = {});

  const Partition& partition() const { return partition_; }
  // Around the backward pass of a micro-batch; `last` of its step.
  void BeginBackward(bool last);
  void EndBackward();
  // The gradients of a step are consumed: part gradients end.
  void EndStep();

  // After the update, stages 1 and 2 (and what stage 3 keeps whole): everybody has every part.
  void GatherWeights();
  // Stage 3: the weights of one layer (−1: outside the layers), whole while they are needed.
  void Gather(Parameter& parameter);
  void Release(Parameter& parameter);
  void GatherLayer(int64_t layer);
  void ReleaseLayer(int64_t layer);
  const GatherOrder& gathers() const { return weights_.needed(); }

  void AllReduce(const Tensor& tensor);
  // `all` [ranks, width]: this rank's row is there, now all are.
  void AllGatherRows(const Tensor& all);

 private:
  struct Bucket {
    std::vector<Parameter*> members;
    int64_t elements = 0;
    Tensor buffer;                 // what the collective works on
    Tensor row;                    // this rank's sums, held even where none is its own
    std::vector<Tensor> reduced;   // by member: this rank's part; stage 0: the whole
    EventId done = 0;
    bool on_comm_stream = false;
  };

  void OnGradient(Parameter& parameter);
  void Launch();
  void ReduceWhole(Bucket& bucket);
  void ReduceParts(Bucket& bucket);
  void Unpack(Bucket& bucket);
  template <class Collectives>
  void Travel(Bucket& bucket, Collectives collectives);
  // One that is waited for at once. With overlap_comm it queues behind the buckets: a communicator
  // takes collectives in one order, the same in every rank.
  void Collect(CollectiveKind kind, const Tensor& from, const Tensor& to);
  // Between a whole tensor and its columns of a matrix [ranks, width].
  void CopyParts(const Tensor& whole, const Tensor& matrix, int64_t column, bool to_matrix);

  Context& context_;
  Partition partition_;
  GatheredWeights weights_;
  bool reducing_ = false;
  Bucket open_;
  std::deque<Bucket> travelling_;
};

// Nothing where there is one rank.
void Gather(Context& context, Parameter& parameter);
void Release(Context& context, Parameter& parameter);

}  // namespace hbmtune::lowering

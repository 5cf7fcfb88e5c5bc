#pragma once

#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/lowering/hf.h"
#include "kernels/lowering/hf/modules.h"

namespace hbmtune::lowering {

// torch.nn.parallel.DistributedDataParallel (distributed.py, reducer.cpp of 2.15) with its
// defaults: gradients meet in buckets, all-reduced on a stream of their own while the backward
// pass runs. The first step has one bucket for all; from the second on they are filled in the
// order in which gradients were ready.
class Ddp {
 public:
  // Wraps the model: checks shapes between ranks, broadcasts parameters and buffers, makes the
  // bucket.
  Ddp(Aten& aten, const DdpConfig& config, const HfOptions& options,
      std::vector<HfParameter>& parameters, const std::vector<Tensor>& buffers);

  // `syncs`: the last micro-step of a step; those before it run under no_sync().
  void BeginForward(bool syncs);
  void OnGradient(Tensor& leaf);
  void EndBackward();

 private:
  struct Entry {
    HfParameter* parameter;
    size_t bucket = 0;
    int64_t begin = 0;  // elements in the bucket
  };
  struct Bucket {
    Tensor flat;
    std::vector<size_t> entries;
    size_t ready = 0;
  };

  void VerifyShapes();
  void Broadcast(const std::vector<Tensor>& tensors);
  void RebuildBuckets();
  void MakeBuckets(const std::vector<size_t>& order, const std::vector<int64_t>& limits);
  void Reduce(Bucket& bucket);

  Aten& aten_;
  const DdpConfig& config_;
  const HfOptions& options_;
  std::vector<Tensor> buffers_;
  std::vector<Entry> entries_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> ready_order_;
  std::vector<EventId> reduced_;
  bool rebuilt_ = false;
  bool syncs_ = true;
  bool broadcasts_buffers_ = true;
};

}  // namespace hbmtune::lowering

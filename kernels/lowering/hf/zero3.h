#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/core/workload.h"
#include "kernels/lowering/hf.h"
#include "kernels/lowering/hf/weight_gatherer.h"
#include "kernels/lowering/hf/zero.h"

namespace hbmtune::lowering {

// DeepSpeed's stage 3 (runtime/zero/stage3.py of 0.19): weights, gradients and optimizer state are
// partitioned; weights are gathered by a WeightGatherer. With cpu_adam gradients and state live in
// host memory.
class Zero3Optimizer final : public DeepspeedOptimizer {
 public:
  Zero3Optimizer(Aten& aten, const Workload& workload, const TrainConfig& config,
                 const HfOptions& options, std::vector<HfParameter>& parameters);
  ~Zero3Optimizer() override { aten_.set_module_hooks(nullptr); }

  void BeginForward() override { gatherer_.Reset(); }
  void OnGradient(Tensor& leaf) override;
  void BeginBackward(bool last) override { last_ = last; }
  void EndBackward() override;
  void Step() override;
  void ZeroGrad() override { steps_gradients_ = 0; }
  void Save() override;

 private:
  struct Entry {
    HfParameter* parameter;
    int64_t share = 0;  // elements of this rank, padded
    int64_t begin = 0;  // in the flat tensors
  };
  // What one optimizer sub-step takes.
  struct SubGroup {
    double weight_decay = 0;
    int64_t begin = 0, end = 0;  // elements in the flat tensors
    int64_t weights = 0;
    Tensor master, exp_avg, exp_avg_sq;
  };
  struct Piece {  // what waits in the bucket
    const Entry* entry;
    Tensor gradient;
  };

  bool offloads() const { return config_.offload.optimizer == OptimizerOffload::kCpuAdam; }
  void Partition(std::vector<HfParameter>& parameters);
  void UseShares(const Tensor& flat);
  void NameModules(const std::vector<HfParameter>& parameters, bool tied_head);
  void MakeSubGroups();
  void MakeMasters();
  void NameMasters();
  void MakeBuffers();
  void ReduceBucket();
  Tensor ReduceScatter();
  void KeepOwn(const Piece& piece);
  void KeepOnHost(const Entry& entry, const Tensor& from, const Tensor& to);
  void OverflowScratch();
  void NormScratch();
  void StepSubGroup(SubGroup& group);

  Aten& aten_;
  const TrainConfig& config_;
  const HfOptions& options_;
  const Dtype dtype_;
  const int64_t ranks_;
  WeightGatherer gatherer_;
  std::vector<Entry> entries_;  // group by group
  std::vector<double> decays_;  // of entries
  std::vector<std::vector<Tensor>> modules_;  // their parameters, trained or not
  std::vector<SubGroup> sub_groups_;
  Tensor flat_;       // 16-bit shares of all trained weights
  Tensor gradients_;  // of the shares
  Tensor bucket_, count_;
  // cpu_adam: fp32 on the host, one share on the device at a time, the norms of all of them.
  Tensor host_gradients_, on_device_;
  std::vector<Tensor> norms_;
  bool last_ = true;  // of the step's micro-batches
  int64_t in_bucket_ = 0;
  std::deque<EventId> reductions_;  // that the host has not waited for, oldest first
  std::vector<Piece> pieces_;
  int64_t steps_gradients_ = 0;  // backward passes of this step that are done
};

}  // namespace hbmtune::lowering

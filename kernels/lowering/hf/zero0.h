#pragma once

#include <vector>

#include "kernels/core/workload.h"
#include "kernels/lowering/hf.h"
#include "kernels/lowering/hf/zero.h"

namespace hbmtune::lowering {

// DeepSpeed without ZeRO (runtime/fp16/fused_optimizer.py of 0.19, bf16 as well): each rank has all
// weights in one flat 16-bit tensor a group, fp32 masters and the moments of DeepSpeed's own
// FusedAdam, which a config with an `optimizer` gets. Gradients are whole and 16-bit to the step.
class ReplicatedOptimizer final : public DeepspeedOptimizer {
 public:
  ReplicatedOptimizer(Aten& aten, const Workload& workload, const TrainConfig& config,
                      const HfOptions& options, std::vector<HfParameter>& parameters);

  void OnGradient(Tensor&) override {}
  void BeginBackward(bool last) override { last_ = last; }
  void EndBackward() override;
  void Step() override;
  void ZeroGrad() override {}  // the step lets go of them

 private:
  struct Group {
    double weight_decay = 0;
    std::vector<HfParameter*> parameters;
    int64_t elements = 0;
    Tensor flat, master, exp_avg, exp_avg_sq;
    Tensor gradient;  // fp32, flat, within a step
  };

  void MakeGroups();
  void Flatten(Group& group);
  void NameMasters(const Group& group);
  void MakeStates();
  void ReduceBucket(const std::vector<Tensor>& gradients);
  void Widen(Group& group);

  Aten& aten_;
  const HfOptions& options_;
  const Dtype dtype_;
  const int64_t ranks_;
  std::vector<HfParameter*> trained_;  // in the model's order
  std::vector<Group> groups_;
  Tensor count_, overflow_buffer_;
  bool last_ = true;
};

}  // namespace hbmtune::lowering

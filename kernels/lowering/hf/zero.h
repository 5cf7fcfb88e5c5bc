#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/core/workload.h"
#include "kernels/lowering/hf.h"
#include "kernels/lowering/hf/modules.h"

namespace hbmtune::lowering {

// Stage 3 gathers and reduces on streams of their own if overlap_comm is on.
inline StreamId ReduceStream(const ZeroConfig& config) {
  return config.overlap_comm ? kCommStream : kComputeStream;
}
inline StreamId GatherStream(const ZeroConfig& config) {
  return config.overlap_comm ? kGatherStream : kComputeStream;
}

// Elements [begin, end) of a flat tensor.
Tensor Range(Tape& tape, const Tensor& flat, int64_t begin, int64_t end);

// The parameters, now views of something else, under their names.
void NameAnew(Tape& tape, const std::vector<HfParameter>& parameters);

// What the training loop asks of a stage.
class DeepspeedOptimizer {
 public:
  virtual ~DeepspeedOptimizer() = default;
  virtual void BeginForward() {}
  // A leaf's gradient is complete: copied into the bucket, which is reduced when full.
  virtual void OnGradient(Tensor& leaf) = 0;
  // Before and after each backward pass; `last` of the step's micro-steps.
  virtual void BeginBackward(bool last) = 0;
  virtual void EndBackward() = 0;
  virtual void Step() = 0;
  virtual void ZeroGrad() = 0;
  // The whole 16-bit weights are gathered and written.
  virtual void Save() {}
};

// DeepSpeed's stages 1 and 2 (runtime/zero/stage_1_and_2.py of 0.19): 16-bit parameters as views of
// one flat tensor a group, fp32 masters and moments of this rank's share of it, gradients reduced
// by buckets while the backward pass runs. With cpu_adam the share lives in host memory.
class ZeroOptimizer final : public DeepspeedOptimizer {
 public:
  // Flattens the parameters and makes the masters; names the parameters anew.
  ZeroOptimizer(Aten& aten, const Workload& workload, const TrainConfig& config,
                const HfOptions& options, std::vector<HfParameter>& parameters);

  void OnGradient(Tensor& leaf) override;
  void BeginBackward(bool last) override { last_ = last; }
  void EndBackward() override;
  void Step() override;
  void ZeroGrad() override;

 private:
  struct Entry {  // a parameter in its group's flat tensor
    HfParameter* parameter;
    size_t group;
    int64_t begin, end;  // elements
  };
  struct Group {
    double weight_decay = 0;
    std::vector<Entry> entries;
    int64_t part = 0;  // elements of one rank's share
    Tensor flat;       // 16-bit, all ranks' shares
    Tensor master, exp_avg, exp_avg_sq, step;
    Tensor host_grad, host_staging;  // cpu_adam
    // Without contiguous_gradients the gradients themselves, by entry: of this backward pass, and
    // of the step's micro-steps.
    std::vector<Tensor> whole, accumulated;
  };
  struct Piece {  // what waits in the bucket
    const Entry* entry;
    Tensor gradient;
  };

  void MakeGroups(std::vector<HfParameter>& parameters, bool trainer_groups);
  void Flatten(Group& group);
  void MakeMasters(Group& group);
  bool offloads() const { return config_.offload.optimizer == OptimizerOffload::kCpuAdam; }
  bool contiguous() const { return config_.zero.contiguous_gradients || offloads(); }
  int64_t PartBegin(const Group& group) const { return options_.rank * group.part; }
  // Elements of an entry that belong to this rank: [first, second) in the group's flat tensor.
  std::pair<int64_t, int64_t> Own(const Entry& entry) const;
  // Stage 1 without overlap reduces after the backward pass.
  bool reduces_at_end() const { return config_.zero.stage < 2 && !config_.zero.overlap_comm; }
  void MakeBuckets();
  const Entry* EntryOf(const Tensor& leaf) const;
  void Gather(const Entry& entry);
  void MakeOwnGradients();
  int64_t OwnOffset(size_t group) const;
  void ReduceBucket();
  // Elements of what is joined for a reduction of its own.
  std::vector<int64_t> JoinedElements() const;
  void Retire(Piece& piece);
  void Accumulate();
  void KeepOwn(const Piece& piece);
  void KeepOnHost(const Tensor& from, const Tensor& to);
  void NormScratch();
  void StepGroup(size_t index);
  // This rank's gradients of a group, joined.
  Tensor FlatGradients(size_t index);
  void StepOnHost(Group& group);
  void UpdateGroup(Group& group, const Tensor& gradient);

  Aten& aten_;
  const Workload& workload_;
  const TrainConfig& config_;
  const HfOptions& options_;
  const Dtype dtype_;  // of parameters
  const int64_t ranks_;
  std::vector<Group> groups_;
  bool last_ = true;

  Tensor bucket_, second_bucket_;
  // cpu_adam: one parameter's gradient on its way to the host, the norms of all of them.
  Tensor largest_;
  std::vector<Tensor> norms_;
  int64_t in_bucket_ = 0;
  std::vector<Piece> pieces_;
  // This rank's with contiguous_gradients, all groups in one: of this backward pass, and of the
  // step's micro-steps.
  Tensor own_gradients_, accumulated_;
  std::vector<Tensor> retired_;  // reduced gradients that nobody lets go of yet
  Tensor count_;
};

}  // namespace hbmtune::lowering

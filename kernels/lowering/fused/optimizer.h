#pragma once

#include <vector>

#include "kernels/lowering/fused.h"
#include "kernels/lowering/fused/context.h"

namespace hbmtune::lowering {

// State and update of the optimizer, over all trainable parameters. Where it lives:
//   none      in device memory, one parameter after the other, each gradient ending with its
//             update
//   stream    in pinned memory; groups of it are copied through device memory, one group arriving
//             and one leaving while a third is updated
//   cpu_adam  in pinned memory with a copy of the weights; gradients go down, the CPU updates,
//             weights go up, all three at once on different groups
class OptimizerStep {
 public:
  // Allocates the state; that of parameters in `promoted` in fp32, with masters.
  OptimizerStep(Context& context, const OptimizerSettings& settings,
                const std::set<std::string>& promoted);
  // fp32 masters and weights on the CPU take their first values, which are there from the first
  // step on.
  void CopyMasters();
  // Norm, clipping and unscaling, the update, and the end of the gradients.
  void Run();

 private:
  struct State {
    Parameter* parameter;
    Tensor weight;                // what is updated: the weight, or this rank's part of it
    std::vector<Tensor> moments;  // as the optimizer's op lists them, without the master
    Tensor master;
    Tensor host_weight;  // cpu_adam: what the CPU updates, of the weight's dtype
  };
  // States [begin, end), and where their copies are.
  struct Group {
    size_t begin, end;
    std::vector<std::vector<Tensor>> staged;  // stream: moments and master in device memory
    std::vector<Tensor> gradients;            // cpu_adam: in pinned memory
    EventId arrived = 0;
    EventId left = 0;
  };

  State MakeState(Parameter& parameter, bool promoted);
  Tensor ZeroState(const std::string& name, Dtype dtype, const Dims& shape, MemorySpace space);
  MemorySpace space() const;
  void Clip();
  // One parameter: the weight and its state, all in one memory space.
  void Update(const Tensor& gradient, const Tensor& step, const Tensor& control,
              std::vector<Tensor> weight_and_state);
  // Of what is updated, over all ranks.
  Tensor GradientOf(const State& state) const;
  void EndGradient(State& state);
  void SquaresOf(const Tensor& gradient, int64_t row, int64_t begin);

  std::vector<Group> MakeGroups() const;
  void UpdateInPlace();
  void UpdateStreamed();
  void FetchState(Group& group);
  void StoreState(Group& group);
  void UpdateOnCpu();
  void SendGradients(Group& group);
  void SendWeights(Group& group);
  std::vector<Tensor*> StateTensors(State& state);

  Context& context_;
  OptimizerSettings settings_;
  std::vector<State> states_;
  Partition partition_;
  Tensor step_, control_, trackers_;
  Tensor host_step_, host_control_;  // cpu_adam
  // Sums of squares [ranks, …], by parameter: they also name a gradient that is not finite.
  Tensor partials_;
};

}  // namespace hbmtune::lowering

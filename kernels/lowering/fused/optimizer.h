#pragma once

#include <vector>

#include "kernels/lowering/fused.h"
#include "kernels/lowering/fused/context.h"

namespace hbmtune::lowering {

// State and update of the optimizer, over all trainable parameters.
class OptimizerStep {
 public:
  // Allocates the state.
  OptimizerStep(Context& context, const OptimizerSettings& settings);
  // fp32 masters take the weights' first values, which are there from the first step on.
  void CopyMasters();
  // Norm, clipping and unscaling, the update, and the end of the gradients.
  void Run();

 private:
  struct State {
    Parameter* parameter;
    std::vector<Tensor> moments;  // as the optimizer's op lists them, without the master
    Tensor master;
  };

  State MakeState(Parameter& parameter);
  Tensor ZeroState(const std::string& name, Dtype dtype, const Dims& shape);
  void Clip();
  void Update(State& state);

  Context& context_;
  OptimizerSettings settings_;
  std::vector<State> states_;
  Tensor step_, control_, trackers_;
  Tensor partials_;  // sums of squares, by parameter: they also name a gradient that is not finite
};

}  // namespace hbmtune::lowering

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/lowering/hf.h"
#include "kernels/lowering/hf/model.h"

namespace hbmtune::lowering {

// AdamW as torch.optim steps it: the arithmetic by one op a parameter, around it the temporaries
// that the foreach and for-loop implementations make.
class HfAdamw {
 public:
  HfAdamw(Aten& aten, const TrainConfig& config, const HfOptions& options,
          std::vector<HfParameter>& parameters);
  void Step();
  // zero_grad(set_to_none=True)
  void ZeroGrad();
  // Trained parameters: group by group, and as the model declares them.
  const std::vector<HfParameter*>& order() const { return order_; }
  const std::vector<HfParameter*>& declared() const { return declared_; }

 private:
  struct Group {
    std::vector<HfParameter*> parameters;
    double weight_decay = 0;
  };
  struct State {
    Tensor step, exp_avg, exp_avg_sq;
  };
  void MakeStates(const Group& group);
  void StepGroup(const Group& group);
  void Update(const Group& group, HfParameter& parameter);

  Aten& aten_;
  const TrainConfig& config_;
  const OptimizerSettings& settings_;
  std::vector<Group> groups_;
  std::vector<HfParameter*> order_, declared_;
  std::map<std::string, State> states_;
  Tensor count_;  // of steps, as PyTorch keeps it on the CPU
};

// torch.nn.utils.clip_grad_norm_ with its foreach norms.
void ClipGradNorm(Aten& aten, const std::vector<HfParameter*>& parameters, double max_norm);

// torch.amp.GradScaler without overflow.
class HfGradScaler {
 public:
  explicit HfGradScaler(Aten& aten) : aten_(aten) {}
  Tensor Scale(Tensor loss);
  void PrepareFused(const std::vector<HfParameter*>& parameters);
  void Unscale(const std::vector<HfParameter*>& parameters);
  // After optimizer.step(): the overflow flag goes.
  void Update();
  bool unscaled() const { return static_cast<bool>(found_inf_); }

 private:
  static constexpr double kScale = 65536;
  void Divide(const std::vector<HfParameter*>& parameters);

  Aten& aten_;
  Tensor scale_, growth_tracker_, found_inf_, fused_flag_, fused_scale_;
};

}  // namespace hbmtune::lowering

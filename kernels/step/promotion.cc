#include "kernels/step/promotion.h"

#include <cmath>

#include "kernels/step/gradient_norms.h"

namespace hbmtune::step {

bool Promoted(bool before, double norm, const PromotionConfig& config) {
  if (norm < config.grad_norm_threshold) return true;
  return before && norm <= config.grad_norm_threshold * config.hysteresis_ratio;
}

PromotedProgram::PromotedProgram(const Workload& workload, const TrainConfig& config,
                                 const lowering::FusedOptions& options)
    : workload_(workload),
      config_(config),
      options_(options),
      program_(std::make_unique<const Program>(lowering::LowerFused(workload, config, options))) {}

void PromotedProgram::AfterStep(Executor& executor) {
  if (config_.promotion.grad_norm_threshold == 0) return;
  if (executor.scalar(ScalarSlot::kFoundInf).value_or(0) != 0) return;
  std::set<std::string> promoted;
  for (const GradientNorm& gradient : GradientNorms(executor, workload_)) {
    const std::string& name = gradient.parameter.name;
    if (Promoted(options_.promoted.contains(name), gradient.norm, config_.promotion)) {
      promoted.insert(name);
    }
  }
  if (promoted == options_.promoted) return;
  options_.promoted = std::move(promoted);
  auto next = std::make_unique<const Program>(
      lowering::LowerFused(workload_, config_, options_));
  executor.Adopt(*next);
  program_ = std::move(next);
}

}  // namespace hbmtune::step

#include "kernels/step/trial_program.h"

#include <utility>

#include "kernels/step/gradient_norms.h"
#include "kernels/step/promotion.h"

namespace hbmtune::step {

TrialProgram::TrialProgram(const Workload& workload, const TrainConfig& config,
                           const lowering::FusedOptions& options)
    : workload_(workload), config_(config), options_(options) {
  Lower();
  lengths_seen_.insert(options_.row_tokens);
}

void TrialProgram::Lower() {
  auto& program = by_row_tokens_[options_.row_tokens];
  if (program == nullptr) {
    program = std::make_unique<const Program>(lowering::LowerFused(workload_, config_, options_));
  }
  program_ = program.get();
}

bool TrialProgram::UseRows(int64_t row_tokens, Executor& executor) {
  if (row_tokens == options_.row_tokens) return false;
  options_.row_tokens = row_tokens;
  Lower();
  executor.Adopt(*program_);
  return lengths_seen_.insert(row_tokens).second;
}

void TrialProgram::AfterStep(Executor& executor) {
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
  retired_ = std::exchange(by_row_tokens_, {});
  Lower();
  executor.Adopt(*program_);
}

}  // namespace hbmtune::step

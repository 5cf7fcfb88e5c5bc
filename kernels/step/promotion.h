#pragma once

#include <memory>
#include <set>
#include <string>

#include "kernels/lowering/fused.h"
#include "kernels/step/executor.h"

namespace hbmtune::step {

// Whether a parameter has fp32 master and moments from now on: it gets them when its gradient's
// norm falls under the threshold, and gives them up when the norm is over threshold × hysteresis.
bool Promoted(bool before, double norm, const PromotionConfig& config);

// The Program of a trial. With config.promotion the choice of promoted parameters is made anew
// after each step, from the numbers of that step: the device does not branch, the host brings
// another Program.
class PromotedProgram {
 public:
  // Throws std::invalid_argument for what the lowering refuses. `workload` and `config` must
  // outlive it.
  PromotedProgram(const Workload& workload, const TrainConfig& config,
                  const lowering::FusedOptions& options);

  const Program& program() const { return *program_; }
  // Names of the parameters that are promoted now.
  const std::set<std::string>& promoted() const { return options_.promoted; }

  // After a step: reads its gradient norms (a synchronisation) and, if another choice follows, lets
  // the executor adopt its Program. A step that overflowed changes nothing. Every rank comes to the
  // same choice. Throws what Executor::Adopt does.
  void AfterStep(Executor& executor);

 private:
  const Workload& workload_;
  const TrainConfig& config_;
  lowering::FusedOptions options_;
  std::unique_ptr<const Program> program_;
};

}  // namespace hbmtune::step

#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "kernels/lowering/fused.h"
#include "kernels/step/executor.h"

namespace hbmtune::step {

// The Program of a trial: the device does not branch, the host brings another Program. It does so
// where rows are padded to fewer tokens, and with config.promotion, where the choice of promoted
// parameters is made anew after each step from the numbers of that step.
class TrialProgram {
 public:
  // Throws std::invalid_argument for what the lowering refuses. `workload` and `config` must
  // outlive it.
  TrialProgram(const Workload& workload, const TrainConfig& config,
               const lowering::FusedOptions& options);

  const Program& program() const { return *program_; }

  // Between two steps: goes on with rows of so many tokens. True the first time that they have that
  // length: what a device makes ready for shapes it makes then. Throws what Executor::Adopt does.
  bool UseRows(int64_t row_tokens, Executor& executor);

  // Names of the parameters that are promoted now.
  const std::set<std::string>& promoted() const { return options_.promoted; }

  // After a step: reads its gradient norms (a synchronisation) and, if another choice follows, lets
  // the executor adopt its Program. A step that overflowed changes nothing. Every rank comes to the
  // same choice. Throws what Executor::Adopt does.
  void AfterStep(Executor& executor);

 private:
  const Workload& workload_;
  const TrainConfig& config_;
  using Programs = std::map<int64_t, std::unique_ptr<const Program>>;

  void Lower();  // the current Program, if it is not there

  lowering::FusedOptions options_;
  Programs by_row_tokens_;  // all with the same promoted parameters
  Programs retired_;        // with those of the choice before: the executor reads them once more
  std::set<int64_t> lengths_seen_;
  const Program* program_ = nullptr;
};

}  // namespace hbmtune::step

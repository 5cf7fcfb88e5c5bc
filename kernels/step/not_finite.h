#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "kernels/core/workload.h"
#include "kernels/step/executor.h"

namespace hbmtune::step {

// Numbers ceased to be finite where no loss scaling can help.
class NotFinite : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A sentence that names the tensor, its layer and the step: the first weight (in the model's
// order) that is not finite; else the gradient that the backward pass reached first; else the
// loss. For after a step, on host.
std::string DescribeNotFinite(const Program& program, Executor& executor,
                              const Workload& workload, int64_t step);

// The same of the first tensor of the optimizer's state that is not finite; nothing if all are.
std::optional<std::string> StateNotFinite(const Program& program, Executor& executor,
                                          const Workload& workload, int64_t step);

}  // namespace hbmtune::step

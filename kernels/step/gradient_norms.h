#pragma once

#include <vector>

#include "kernels/core/workload.h"
#include "kernels/model/parameters.h"
#include "kernels/step/executor.h"

namespace hbmtune::step {

struct GradientNorm {
  ParameterEntry parameter;
  double norm = 0;  // over all ranks, unscaled, before clipping; not finite if the gradient is not
};

// Of every trained parameter, in the model's order, as of the last step. Waits for the device.
std::vector<GradientNorm> GradientNorms(Executor& executor, const Workload& workload);

}  // namespace hbmtune::step

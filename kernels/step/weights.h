#pragma once

#include <cstdint>

#include "kernels/core/workload.h"
#include "kernels/step/executor.h"

namespace hbmtune::step {

// Gives every parameter its first value, after the setup: normal with standard deviation 0.02,
// norms 1, biases and the second factor of adapters 0. A function of the seed and the parameter's
// place in the model alone. Does nothing on the model.
void InitialiseWeights(Executor& executor, const Program& program, const Workload& workload,
                       uint64_t seed);

}  // namespace hbmtune::step

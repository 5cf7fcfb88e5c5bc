#pragma once

#include <cstdint>

#include "kernels/core/workload.h"
#include "kernels/step/executor.h"

namespace hbmtune::step {

// Gives every parameter its first value, after the setup: normal with standard deviation 0.02,
// norms 1, biases and the second factor of adapters 0. A function of the seed and the parameter's
// place in the model alone; of a parameter that is cut between ranks the rank's part. Does nothing
// on the model.
void InitialiseWeights(Executor& executor, const Program& program, const Workload& workload,
                       uint64_t seed, int64_t rank = 0);

}  // namespace hbmtune::step

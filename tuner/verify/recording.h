#pragma once

#include <string>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/lowering/hf.h"
#include "tuner/verify/events.h"

namespace hbmtune::tuner {

// A recorded run, and what it says in our words.
struct Recording {
  std::string name;
  Workload workload;
  TrainConfig config;
  lowering::HfOptions options;
  std::vector<PhaseEvents> phases;
  std::vector<bool> owned;  // by allocation: a parameter, gradient or optimizer state
};

// Throws std::invalid_argument that says what is wrong with it.
Recording ReadRecording(const Json& run);

}  // namespace hbmtune::tuner

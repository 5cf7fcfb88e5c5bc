#pragma once

#include <string>

#include "kernels/core/workload.h"

namespace hbmtune::testing {

// A small model of 8 layers to train in milliseconds: "llama", "falcon", "gpt2",
// "gpt2_dropout" (everywhere where the model can), "llama_lora" (with dropout on the adapters).
Workload SmallWorkload(const std::string& name);

}  // namespace hbmtune::testing

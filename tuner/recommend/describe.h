#pragma once

#include <string>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune::tuner {

// "micro-batch 4 × accumulation 8, checkpoint every layer, ZeRO 2": what of `config` differs from
// `from`, in people's words; empty if nothing does. Every field is covered, by its path if it has
// no words of its own.
std::string Differences(const TrainConfig& from, const TrainConfig& config);

// The same in lines that together say the whole config: batch, checkpointing and precision always,
// the rest where it differs from the framework's base. Configs that differ have different words.
std::vector<std::string> Describe(Framework framework, const TrainConfig& config);

}  // namespace hbmtune::tuner

#pragma once

#include <string>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune::client {

// The configs of one table in people's words, so that no two different ones read the same: what
// all have in common is told once.
struct ConfigsApart {
  std::string common;            // "checkpoint every layer, bf16-amp"; may be empty
  std::vector<std::string> own;  // one a config, "–" where it has nothing that others lack
};
ConfigsApart DescribeApart(const std::vector<TrainConfig>& configs, Framework framework);

}  // namespace hbmtune::client

#pragma once

#include <string>

#include "kernels/core/workload.h"
#include "kernels/model/presets.h"

namespace hbmtune::tuner {

// A workload that is legal for the framework, on `world_size` ranks.
inline Workload MakeWorkload(Framework framework, const std::string& model = "tiny-llama",
                             int64_t world_size = 1, int64_t global_batch = 0) {
  Workload workload;
  workload.model = *FindPreset(model);
  workload.seq_len = 256;
  workload.framework = framework;
  workload.world_size = world_size;
  workload.global_batch = global_batch;
  return workload;
}

inline constexpr Framework kAllFrameworks[] = {
    Framework::kFused,      Framework::kHfEager,          Framework::kHfSdpa,
    Framework::kHfEagerDdp, Framework::kHfSdpaDdp,        Framework::kHfEagerDeepspeed,
    Framework::kHfSdpaDeepspeed};

inline bool RunsOnOneRankOnly(Framework framework) {
  return framework == Framework::kHfEager || framework == Framework::kHfSdpa;
}

}  // namespace hbmtune::tuner

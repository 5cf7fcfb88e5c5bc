#pragma once

#include <array>
#include <cstdint>

#include "kernels/core/category.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/device/profile.h"
#include "kernels/program/program.h"

namespace hbmtune::predict {

using ByCategory = std::array<int64_t, kCategoryCount>;  // bytes, indexed by Category

// Memory of one rank by the published sums: bytes a parameter, a token and a layer. No order of
// allocations, so no fragmentation and no temporaries beyond those named.
struct MemorySums {
  ByCategory peak{};
  int64_t peak_bytes = 0;
  PhaseKind phase = PhaseKind::kBackward;
  int64_t host_bytes = 0;
};
MemorySums SumMemory(const Workload& workload, const TrainConfig& config);

// Seconds of one optimizer step of one rank, by component.
struct TimeSums {
  double matmul = 0;
  double attention = 0;
  double memory = 0;
  double optimizer = 0;
  double collectives = 0;
  double copies = 0;
  double launch = 0;  // host time to issue everything, which overlaps with the device's

  double device() const { return matmul + attention + memory + optimizer; }
  double step() const;
};
TimeSums SumTime(const Workload& workload, const TrainConfig& config,
                 const device::DeviceProfile& profile);

}  // namespace hbmtune::predict

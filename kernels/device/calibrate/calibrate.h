#pragma once

#include <functional>
#include <string>

#include "kernels/device/profile.h"

namespace hbmtune::device {

struct CalibrationOptions {
  int threads = 0;               // 0: all cores
  double budget_seconds = 45;    // more shapes are left out when it is spent
  std::string date;              // for the sources of the figures: "2026-11-29"
};

// A measured profile of the host: the hot ops by shape and element type, memory bandwidth, copies,
// least cost of an op and of a segment, and the all-reduce of two ranks (threads of this process
// over the loopback interface). `base` gives what is not measured. `progress` is told a share of 1
// and what is measured now. Throws DeviceError if the ranks do not meet. Not while other work runs:
// it would be measured too.
using CalibrationProgress = std::function<void(double done_ratio, const std::string& what)>;
DeviceProfile CalibrateHost(const DeviceProfile& base, const CalibrationOptions& options,
                            const CalibrationProgress& progress);

}  // namespace hbmtune::device

#pragma once

#include <iosfwd>
#include <string>

#include "kernels/device/calibrate/calibrate.h"

namespace hbmtune::probe {

// Measures the host: its profile as TOML, which reads back. Throws std::runtime_error or
// DeviceError with a sentence if something cannot be measured, and what `progress` throws.
std::string MeasureHost(int threads, double budget_seconds,
                        const device::CalibrationProgress& progress);

// Measures the host and writes its profile to `path`, whole or not at all. Each line on `out` is a
// share of 1 and what is measured now: "0.43 products of fp32". Returns the exit status: 1 with a
// sentence on stderr if something cannot be measured or written.
int Calibrate(const std::string& path, int threads, double budget_seconds, std::ostream& out);

}  // namespace hbmtune::probe

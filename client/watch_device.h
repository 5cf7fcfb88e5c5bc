#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "client/connection.h"
#include "client/errors.h"
#include "hbmtune/v1/devices.pb.h"

namespace hbmtune::client {

enum class SampleFormat { kText, kCsv, kJson };

struct WatchDeviceOptions {
  std::string device;
  double period_seconds = 1;
  int64_t most_samples = 0;  // 0: until it is interrupted
  SampleFormat format = SampleFormat::kText;
};

// Prints a device's memory, sample by sample, until the end of the options or an interruption.
absl::StatusOr<ExitCode> WatchDevice(const Connection& connection,
                                     const WatchDeviceOptions& options);

// The columns of the CSV, and a sample's lines: one for each job that reports, or one without job.
// What is not known is an empty cell.
std::string CsvTitle();
std::vector<std::string> CsvLines(const v1::MemorySample& sample);

}  // namespace hbmtune::client

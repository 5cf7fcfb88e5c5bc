#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/monitor/job_monitors.h"
#include "daemon/store/database.h"
#include "daemon/telemetry/sampler.h"

namespace hbmtune::daemon {

// A minute of a device's used memory.
struct StoredMinute {
  absl::Time start;
  int64_t least_bytes = 0;
  double mean_bytes = 0;
  int64_t most_bytes = 0;
};

struct StoredFinding {
  int64_t id = 0;
  absl::Time time;
  std::string device;
  std::string job_id;
  Finding finding;
};

// The devices' memory on disk: minutes and findings. Any thread; errors as Database has them.
class MemoryStore {
 public:
  explicit MemoryStore(Database& database) : database_(database) {}

  // A minute that is there already is replaced.
  absl::Status AddMinute(const std::string& device, const StoredMinute& minute);
  // Oldest first: those that begin in [from, to), at most `limit`.
  absl::StatusOr<std::vector<StoredMinute>> Minutes(const std::string& device, absl::Time from,
                                                    absl::Time to, int64_t limit);

  absl::Status AddFinding(absl::Time time, const JobFinding& finding);
  // Newest first: of one device, or of all for ""; with an id under `before` (0: all), at most
  // `limit`.
  absl::StatusOr<std::vector<StoredFinding>> Findings(const std::string& device, int64_t before,
                                                      int64_t limit);

 private:
  Database& database_;
};

}  // namespace hbmtune::daemon

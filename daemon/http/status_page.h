#pragma once

#include <absl/time/time.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/devices/catalogue.h"
#include "daemon/monitor/job_monitors.h"
#include "daemon/studies/study.h"

namespace hbmtune::daemon {

// What the status page shows. Holds no user names and no commands.
struct StatusView {
  struct Device {
    DeviceInfo info;
    std::string state;                                   // "IDLE", "PROBING", …
    std::string dirty;                                   // why it is dirty; empty: it is not
    double now_seconds = 0;                              // of the clock of `history`
    std::vector<std::pair<double, int64_t>> history;     // (seconds, used bytes), oldest first
  };
  struct Study {
    StudyRecord record;
    std::vector<TrialRecord> trials;
  };
  std::string hostname;
  std::string version;
  std::string degraded;  // why the store cannot be written; empty when it can
  std::vector<Device> devices;
  std::vector<Study> studies;  // newest first
  std::vector<JobFinding> findings;  // newest first; their jobs' ids are not shown
};

// The page itself, and the JSON that it asks for every second.
std::string_view StatusPageHtml();
std::string StatusJson(const StatusView& view);

}  // namespace hbmtune::daemon

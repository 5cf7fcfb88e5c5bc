#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/telemetry/monitor.h"

namespace hbmtune::daemon {

// What the driver says of a device now; absent where it says nothing.
struct DriverMemory {
  std::optional<int64_t> used_bytes;
  std::optional<int64_t> total_bytes;
};

// A job's last report and what follows from it.
struct JobMemory {
  std::string device;
  std::string job_id;
  AllocatorReport report;
  MemoryState state;
};

struct JobFinding {
  int64_t sequence = 0;  // counts every finding of this daemon from 1
  std::string device;
  std::string job_id;
  Finding finding;
};

// The memory monitors of all jobs that report, one a job and device. Any thread.
class JobMonitors {
 public:
  static constexpr size_t kFindings = 100;  // kept, of all devices together
  static constexpr size_t kJobs = 1024;     // a monitor holds about 5 KiB
  static constexpr absl::Duration kSilence = absl::Minutes(10);  // then a job is forgotten
  using DriverReader = std::function<DriverMemory(const std::string& device)>;  // any thread
  // Called on the reporter's thread, without a lock held.
  using FindingListener = std::function<void(const JobFinding&)>;
  using Counts = std::array<int64_t, EnumNames<FindingKind>::kNames.size()>;

  JobMonitors(const Clock& clock, DriverReader driver, FindingListener listener)
      : clock_(clock), driver_(std::move(driver)), listener_(std::move(listener)) {}

  // `device` by its own name. Returns what the report shows that is new. INVALID_ARGUMENT names
  // the field of the report that cannot be, PERMISSION_DENIED (NOT_OWNER) if another user reports
  // for this job, RESOURCE_EXHAUSTED with kJobs jobs.
  absl::StatusOr<std::vector<Finding>> Report(const std::string& device, const std::string& job_id,
                                              int64_t uid, const AllocatorReport& report)
      ABSL_LOCKS_EXCLUDED(mutex_);

  DriverMemory Driver(const std::string& device) const { return driver_(device); }
  // By device and job; of one device, or of all for "".
  std::vector<JobMemory> Jobs(const std::string& device = "") const ABSL_LOCKS_EXCLUDED(mutex_);
  // Oldest first, those with a higher sequence; of one device, or of all for "".
  std::vector<JobFinding> FindingsSince(int64_t sequence, const std::string& device = "") const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // By kind, since the daemon started.
  Counts counts() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Key = std::pair<std::string, std::string>;  // device, job
  struct Watched {
    int64_t uid = 0;
    absl::Duration reported;
    AllocatorReport report;
    MemoryMonitor monitor;
  };

  absl::StatusOr<Watched*> Find(const Key& key, int64_t uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  const DriverReader driver_;
  const FindingListener listener_;
  mutable absl::Mutex mutex_;
  std::map<Key, Watched> jobs_ ABSL_GUARDED_BY(mutex_);
  std::deque<JobFinding> findings_ ABSL_GUARDED_BY(mutex_);
  int64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace hbmtune::daemon

#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/prober/probe_link.h"

namespace hbmtune::daemon {

// Probes that could not be ended, kept until they are gone: a process that hangs in the driver may
// end hours after its SIGKILL, and would then stay as a zombie. Any thread.
class Reaper {
 public:
  void Keep(std::unique_ptr<ProbeLink> probe, int64_t pid) ABSL_LOCKS_EXCLUDED(mutex_);
  // Reaps those that have ended meanwhile; their pids. Never waits.
  std::vector<int64_t> Reap() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  struct Lost {
    std::unique_ptr<ProbeLink> probe;
    int64_t pid;
  };
  std::vector<Lost> lost_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon

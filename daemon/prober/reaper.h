#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>

#include <cstdint>
#include <vector>

#include "daemon/prober/child_process.h"

namespace hbmtune::daemon {

// Children that could not be killed, kept until they are gone: a process that hangs in the driver
// may end hours after its SIGKILL, and would then stay as a zombie. Any thread.
class Reaper {
 public:
  void Keep(ChildProcess child) ABSL_LOCKS_EXCLUDED(mutex_);
  // Reaps those that have ended meanwhile; their pids. Never waits.
  std::vector<int64_t> Reap() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  std::vector<ChildProcess> lost_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon

#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/studies/runner.h"
#include "daemon/studies/session.h"
#include "daemon/studies/study.h"

namespace hbmtune::daemon {

// The studies of one device: one runs, the others wait in their order. One thread, from the first
// study to the queue's end.
class DeviceQueue {
 public:
  // Runs a study to its end, or until told to stop.
  using RunStudy = std::function<void(StudySession&, StopRequest&)>;
  struct Callbacks {
    std::function<absl::StatusOr<std::unique_ptr<StudySession>>(int64_t study_id)> open;
    RunStudy run;
    std::function<void(int64_t study_id, const absl::Status&)> failed_to_open;
    std::function<void(int64_t study_id)> left;  // ended, or stopped for a restart
  };

  explicit DeviceQueue(Callbacks callbacks);
  ~DeviceQueue();  // drains

  void Enqueue(int64_t study_id) ABSL_LOCKS_EXCLUDED(mutex_);
  enum class Found { kNo, kWaiting, kRunning };
  // Takes a waiting study out of the queue; tells a running one to stop (`left` follows).
  Found Remove(int64_t study_id, const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // The running one as it is now.
  std::optional<StudyRecord> Running() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<StudySession> RunningSession() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Who is served, and in which order the others are.
  struct Order {
    int64_t running = 0;  // 0 for none
    std::vector<int64_t> waiting;
  };
  Order order() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops the running trial, not its study.
  void InterruptTrial() ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops the running study for a restart and starts no other. Does not wait.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunOne(int64_t study_id) ABSL_LOCKS_EXCLUDED(mutex_);

  const Callbacks callbacks_;
  mutable absl::Mutex mutex_;
  std::deque<int64_t> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t running_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<StudySession> session_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<StopRequest> stop_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hbmtune::daemon

#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>

#include <functional>
#include <list>
#include <string>
#include <thread>

#include "daemon/leases/arbiter.h"

namespace hbmtune::daemon {

// Calls that wait for a lease, without a thread each: one thread looks every 50 ms.
class LeaseWaiters {
 public:
  // What became of the wait: OK, or as DeviceArbiter::Wait has it. Called once, by another thread.
  using Done = std::function<void(const absl::Status&)>;
  using GaveUp = std::function<bool()>;  // the client is gone

  explicit LeaseWaiters(DeviceArbiter& arbiter);
  ~LeaseWaiters();  // what still waits is UNAVAILABLE

  void Add(const std::string& job_id, GaveUp gave_up, Done done) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiter {
    std::string job_id;
    GaveUp gave_up;
    Done done;
  };
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);

  DeviceArbiter& arbiter_;
  absl::Mutex mutex_;
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hbmtune::daemon

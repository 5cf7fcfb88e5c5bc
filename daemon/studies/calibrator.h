#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "daemon/base/log.h"
#include "daemon/leases/arbiter.h"
#include "daemon/prober/cancellation.h"
#include "daemon/prober/prober.h"
#include "daemon/studies/runner.h"

namespace hbmtune::daemon {

// Measures this node's CPU by a probe, under the device's permit and lock as any trial, and keeps
// the profile. One at a time, on a thread of its own. Any thread.
class Calibrator {
 public:
  struct Parts {
    const Prober& prober;
    DeviceArbiter& arbiter;
    const StudyRunner::NodeHold node;
    std::string profile_directory;
    const Log& log;
  };
  struct Request {
    double budget_seconds = 45;  // for products
    int64_t threads = 0;         // 0: all cores
    int64_t uid = 0;             // whose it is
  };
  // Called by the calibrator's thread.
  struct Listener {
    std::function<void(double done_ratio, const std::string& what)> progress;
    // Once, the last call: the profile as TOML, which is stored; CANCELLED, ABORTED (the device is
    // needed, or the daemon leaves), or what went wrong.
    std::function<void(const absl::StatusOr<std::string>&)> done;
  };

  explicit Calibrator(Parts parts) : parts_(std::move(parts)) {}
  ~Calibrator();  // stops it, and waits

  // Begins, or FAILED_PRECONDITION: one runs already, or no probe can begin on `host` now; then the
  // listener is never called. `cancellation` ends it early.
  absl::Status Start(const Request& request, std::shared_ptr<Cancellation> cancellation,
                     Listener listener) ABSL_LOCKS_EXCLUDED(mutex_);
  // A job or an admin needs the device.
  void InterruptOn(const std::string& device) ABSL_LOCKS_EXCLUDED(mutex_);
  // The daemon leaves. Does not wait.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::StatusOr<std::string> Measure(const Request& request, const Cancellation& cancellation,
                                      const Listener& listener) const;
  absl::Status Keep(const std::string& profile_toml) const;
  void Interrupt(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WhyInterrupted() const ABSL_LOCKS_EXCLUDED(mutex_);

  const Parts parts_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<Cancellation> running_ ABSL_GUARDED_BY(mutex_);  // null: none runs
  std::string interrupted_ ABSL_GUARDED_BY(mutex_);                // by us, and why
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon

#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/time.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/leases/arbiter.h"
#include "daemon/studies/session.h"

namespace hbmtune::daemon {

// The trials of one study that clients run: who has which, and since when nothing was heard of it.
// Any thread. NOT_FOUND (TRIAL_LOST): the trial is not this prober's any more.
class ClientProbes {
 public:
  static constexpr absl::Duration kHeartbeat = absl::Seconds(30);

  ClientProbes(StudySession& session, const Clock& clock, DeviceArbiter& arbiter)
      : session_(session), clock_(clock), arbiter_(arbiter) {}

  // The prober's trial, if it has one; else the session's next, as long as the arbiter lets the
  // device be probed: it is ours until no trial runs.
  absl::StatusOr<StudySession::Suggestion> Suggest(const std::string& prober)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // True if the prober has to stop.
  absl::StatusOr<bool> Beat(int64_t number, const std::string& prober)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // CANCELLED measurements abandon the trial; all others are stored.
  absl::StatusOr<TrialRecord> Complete(int64_t number, const std::string& prober,
                                       const Measurement& measurement)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes trials from probers that fell silent; they are handed out again. Returns how many.
  int64_t TakeFromSilent() ABSL_LOCKS_EXCLUDED(mutex_);
  // The device is needed: tells the probers of what runs now to stop.
  void Interrupt() ABSL_LOCKS_EXCLUDED(mutex_);
  // Hands out nothing more and tells probers to stop.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes all trials away: what comes for them later is refused.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);
  // Why the study is over: no trial is left to hand out, none runs. Empty while it is not.
  std::string over() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t running() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Running {
    TrialRecord trial;
    std::string prober;
    absl::Duration heard;  // since boot
    bool interrupted = false;
  };
  // Takes the device for the first trial, and gives it back after the last one.
  absl::Status TakeDevice() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBackIfUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Running*> Find(int64_t number, const std::string& prober)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  StudySession& session_;
  const Clock& clock_;
  DeviceArbiter& arbiter_;
  mutable absl::Mutex mutex_;
  std::map<int64_t, Running> running_ ABSL_GUARDED_BY(mutex_);
  std::optional<DeviceArbiter::Permit> permit_ ABSL_GUARDED_BY(mutex_);  // while any runs
  std::string over_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hbmtune::daemon

#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/log.h"
#include "daemon/devices/gpu_guard.h"
#include "daemon/leases/arbiter.h"
#include "daemon/prober/cancellation.h"
#include "daemon/prober/prober.h"
#include "daemon/studies/session.h"

namespace hbmtune::daemon {

// Why a running study is told to stop.
enum class StopReason : uint8_t {
  kNone,
  kCancel,  // somebody cancelled it: it ends
  kDrain,   // the daemon leaves: it goes on after the restart
};

// Set by any thread, read by the study's.
class StopRequest {
 public:
  // The first reason stands.
  void Set(StopReason reason, const std::string& message) ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops the running trial only: its device is needed. The study goes on when it may.
  void InterruptTrial() ABSL_LOCKS_EXCLUDED(mutex_);
  StopReason reason() const { return reason_; }
  // The daemon leaves, whatever the reason that stands.
  bool draining() const { return leaving_.cancelled(); }
  const Cancellation& leaving() const { return leaving_; }
  std::string message() const ABSL_LOCKS_EXCLUDED(mutex_);
  const Cancellation& cancellation() const { return cancellation_; }
  // For the trial that starts now: cancelled with the study, or by InterruptTrial.
  std::shared_ptr<const Cancellation> BeginTrial() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::atomic<StopReason> reason_ = StopReason::kNone;
  Cancellation leaving_;
  Cancellation cancellation_;
  mutable absl::Mutex mutex_;
  std::string message_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Cancellation> trial_ ABSL_GUARDED_BY(mutex_);
};

// Runs a study on this thread until it is over or told to stop: asks the session for trials, runs
// each (an estimate on a modelled device, a probe elsewhere) and hands back the results. When the
// disk is full it waits, keeping what it holds: results and the study's end until the daemon
// leaves, also if the study is cancelled meanwhile.
class StudyRunner {
 public:
  using TrialCounter = std::function<void(const TrialRecord&, DeviceKind)>;
  // The word of whoever else owns the node's devices: asked before each probe for the time that it
  // may take, given back with the study's end. By default nobody.
  struct NodeHold {
    std::function<absl::Status(const std::string& device, absl::Duration time)> take =
        [](const std::string&, absl::Duration) { return absl::OkStatus(); };
    std::function<void(const std::string& device)> give_back = [](const std::string&) {};
  };
  struct Parts {
    StudyStore& store;
    const Prober& prober;
    DeviceArbiter& arbiter;
    GpuGuard& gpus;
    const NodeHold& node;
    const Clock& clock;
    const Log& log;
    TrialCounter count;
    // What the study waits for has changed.
    std::function<void()> waits_otherwise = [] {};
    // It was cancelled, and cannot end because the store takes nothing: again at every attempt.
    std::function<void(const absl::Status&)> held_up = [](const absl::Status&) {};
  };
  StudyRunner(StudySession& session, StopRequest& stop, const Parts& parts);

  void Run();

 private:
  bool stopped() const { return stop_.reason() != StopReason::kNone; }
  // One suggestion run to its end; false when the study is over, or has to stop.
  bool RunNext();
  // Lets clients run the trials, until the study is over or has to stop.
  void ServeProbers();
  bool RunTrial(StudySession::Suggestion suggestion);
  bool Finish(TrialRecord& trial);  // false: its result could not be stored
  void Abandon(const TrialRecord& trial);
  void Forget(const TrialRecord& trial);  // what its probe may have left
  // Of a study that ends: stores what probes of an earlier daemon finished. False if this daemon
  // leaves before that is known.
  bool CollectCutShort();
  absl::Status Execute(TrialRecord& trial);
  absl::Status Collect(TrialRecord& trial);
  absl::Status Probe(TrialRecord& trial);
  ProbeObserver Observe(const TrialRecord& trial, std::optional<int64_t>& pid);
  // A probe that refuses a config that the space allows refuses its device.
  bool RefusesGpu(const TrialRecord& trial) const;
  ProbeTask TaskFor(const TrialRecord& trial) const;
  void End(StudyState state, const std::string& message);
  std::string EndMessage(const std::string& why) const;
  // Repeats `attempt` while the store or the device is out of reach, and says so, until `give_up`;
  // the last status.
  absl::Status Persist(const Cancellation& give_up, const std::function<absl::Status()>& attempt);
  void SetMessage(const std::string& message);

  StudySession& session_;
  StopRequest& stop_;
  const Parts parts_;
  bool interrupted_ = false;  // the last probe was told to stop
  // Cut short under an earlier daemon, and the study stopped before their probes were seen gone.
  std::vector<TrialRecord> unsettled_;
};

}  // namespace hbmtune::daemon

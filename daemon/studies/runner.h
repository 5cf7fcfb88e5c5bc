#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>

#include "daemon/base/log.h"
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

// Set once by any thread, read by the study's.
class StopRequest {
 public:
  // The first reason stands.
  void Set(StopReason reason, const std::string& message);
  StopReason reason() const { return reason_; }
  // Why it was cancelled; read after reason() said so.
  const std::string& message() const { return message_; }
  const Cancellation& cancellation() const { return cancellation_; }

 private:
  std::atomic<StopReason> reason_ = StopReason::kNone;
  std::atomic<bool> taken_ = false;
  std::string message_;
  Cancellation cancellation_;
};

// Runs a study on this thread until it is over or told to stop: asks the session for trials, runs
// each (an estimate on a modelled device, a probe elsewhere) and hands back the results. When the
// disk is full it waits, keeping what it holds.
class StudyRunner {
 public:
  using TrialCounter = std::function<void(const TrialRecord&, DeviceKind)>;
  StudyRunner(StudySession& session, const Prober& prober, StudyStore& store, const Clock& clock,
              const Log& log, const StopRequest& stop, TrialCounter count);

  void Run();

 private:
  bool stopped() const { return stop_.reason() != StopReason::kNone; }
  // One suggestion run to its end; false when the study is over, or has to stop.
  bool RunNext();
  bool RunTrial(TrialRecord trial);
  absl::Status Execute(TrialRecord& trial);
  absl::Status Probe(TrialRecord& trial);
  ProbeTask TaskFor(const TrialRecord& trial) const;
  void End(StudyState state, const std::string& message);
  std::string EndMessage(const std::string& why) const;
  // Repeats `attempt` while the store or the device is out of reach; the last status otherwise.
  absl::Status Persist(const std::function<absl::Status()>& attempt);

  StudySession& session_;
  const Prober& prober_;
  StudyStore& store_;
  const Clock& clock_;
  const Log& log_;
  const StopRequest& stop_;
  const TrialCounter count_;
};

}  // namespace hbmtune::daemon

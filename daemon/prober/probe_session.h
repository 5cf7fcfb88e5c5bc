#pragma once

#include <absl/time/time.h>

#include <optional>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/prober/child_process.h"
#include "daemon/prober/event_reader.h"
#include "daemon/prober/prober.h"
#include "daemon/prober/stop_ladder.h"

namespace hbmtune::daemon {

// One running probe, from its request to its end. Used by one thread, once.
class ProbeSession {
 public:
  ProbeSession(ChildProcess child, const ProbeTask& task, const StopLadder::Times& stop,
               const Clock& clock, const Log& log);

  // Sends the request, follows the probe until it is gone, and judges how it ended.
  Measurement Follow(const std::string& request, const Cancellation& cancellation,
                     const ProbeObserver& observer);
  // After Follow: the probe is still there, in spite of SIGKILL.
  bool lost() const { return lost_; }
  ChildProcess TakeChild() && { return std::move(child_); }

 private:
  enum class Stop { kNone, kTimeout, kCancelled, kBadOutput, kWrongDevice, kLingering };

  absl::Time Now() const { return absl::UnixEpoch() + clock_.SinceBoot(); }
  void Begin(Stop reason);
  bool Climb();  // false: given up
  void Wait(const Cancellation& cancellation);
  void ReadEvents(const ProbeObserver& observer);
  void ReadErrors();
  void Handle(const v1::ProbeEvent& event, const ProbeObserver& observer);
  Measurement Judge(std::optional<int> wait_status) const;
  std::string LastWords() const;

  ChildProcess child_;
  const ProbeTask& task_;
  const Clock& clock_;
  const Log& log_;
  const absl::Time deadline_;
  StopLadder ladder_;
  Stop stop_ = Stop::kNone;
  bool lost_ = false;
  EventReader reader_;
  std::optional<Measurement> finished_;
  absl::Time linger_until_ = absl::InfiniteFuture();
  ProbeStep last_step_;
  bool any_step_ = false;
  std::string error_tail_;
  std::string bad_output_;
  std::string seen_device_;  // another than the task's
};

}  // namespace hbmtune::daemon

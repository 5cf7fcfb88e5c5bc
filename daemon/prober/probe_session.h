#pragma once

#include <absl/time/time.h>

#include <memory>
#include <optional>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/prober/event_reader.h"
#include "daemon/prober/probe_link.h"
#include "daemon/prober/prober.h"
#include "daemon/prober/stop_ladder.h"

namespace hbmtune::daemon {

// One running probe, from its request to its end. Used by one thread, once.
class ProbeSession {
 public:
  ProbeSession(std::unique_ptr<ProbeLink> probe, const ProbeTask& task,
               const StopLadder::Times& stop, const Clock& clock, const Log& log);

  // Sends the request, follows the probe until it is gone, and judges how it ended.
  Measurement Follow(const std::string& request, const Cancellation& cancellation,
                     const ProbeObserver& observer);
  // After Follow: the probe is still there, in spite of all that was tried.
  bool lost() const { return lost_; }
  std::unique_ptr<ProbeLink> TakeProbe() && { return std::move(probe_); }
  // The probe's process, once it is known.
  int64_t pid() const { return pid_; }

 private:
  enum class Stop { kNone, kTimeout, kCancelled, kBadOutput, kWrongDevice, kLingering };

  absl::Time Now() const { return absl::UnixEpoch() + clock_.SinceBoot(); }
  void Begin(Stop reason);
  bool Climb();  // false: given up
  void Wait(const Cancellation& cancellation);
  void ReadEvents(const ProbeObserver& observer);
  void ReadErrors();
  void Handle(const v1::ProbeEvent& event, const ProbeObserver& observer);
  Measurement Judge(const std::optional<ProbeEnd>& end) const;
  std::string NameOfProbe() const;
  std::string LastWords() const;

  std::unique_ptr<ProbeLink> probe_;
  int64_t pid_ = 0;
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

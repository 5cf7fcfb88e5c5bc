#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/unique_fd.h"
#include "daemon/prober/stop_ladder.h"

namespace hbmtune::daemon {

// How a probe ended, for a sentence: "the probe " + how + " after step 3" + hint.
struct ProbeEnd {
  std::string how;   // "ended with signal 9 (Killed)"
  std::string hint;  // begins with "; ", or is empty
};

// A running probe as its prober holds it: a child of ours, or a connection to a unit of its own.
// Used by one thread at a time. Destroyed, it tells the probe to stop and leaves it to itself.
class ProbeLink {
 public:
  virtual ~ProbeLink() = default;

  // 0 where only the probe itself can tell, in `started`.
  virtual int64_t pid() const = 0;
  // Once, whole. That the probe is gone already shows in Ended.
  virtual void Send(const std::string& request) = 0;
  // Its events, and its stderr where that comes to us: non-blocking, closed by their reader when
  // they are at their end.
  virtual UniqueFd& output() = 0;
  virtual UniqueFd& errors() = 0;
  // Besides `output`, readable when it may have ended; -1 for none.
  virtual int ended_fd() const = 0;
  // Once it has ended. Never waits; what it wrote may still be there to read.
  virtual std::optional<ProbeEnd> Ended() = 0;
  // The stop's next step; nothing to do for kGiveUp.
  virtual void Stop(StopLadder::Action action) = 0;
  // Of one that was given up: "is still there after SIGKILL".
  virtual std::string StillThere() const = 0;
};

}  // namespace hbmtune::daemon

#pragma once

#include <absl/time/time.h>

#include <optional>

namespace hbmtune::daemon {

// What a stop does next, and when: end of file on stdin and SIGINT at once, SIGTERM after 3 s,
// SIGKILL after 10 s, given up as lost 5 s later. A kill inside the GPU driver can strand memory,
// so the gentle ways come first. Knows no process and no clock.
class StopLadder {
 public:
  struct Times {
    absl::Duration terminate = absl::Seconds(3);
    absl::Duration kill = absl::Seconds(10);
    absl::Duration lost = absl::Seconds(15);
  };
  enum class Action { kInterrupt, kTerminate, kKill, kGiveUp };

  StopLadder() : StopLadder(Times{}) {}
  explicit StopLadder(const Times& times) : times_(times) {}

  bool started() const { return started_; }
  // Begins the stop; later calls change nothing.
  void Start(absl::Time now);
  // The action whose time has come, each one once; nothing if none has.
  std::optional<Action> Due(absl::Time now);
  // When the next action is due; infinite before Start and after kGiveUp.
  absl::Time Next() const;

 private:
  absl::Duration Offset() const;

  const Times times_;
  bool started_ = false;
  absl::Time start_;
  int taken_ = 0;
};

}  // namespace hbmtune::daemon

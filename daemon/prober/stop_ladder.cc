#include "daemon/prober/stop_ladder.h"

#include <array>

namespace hbmtune::daemon {

void StopLadder::Start(absl::Time now) {
  if (started_) return;
  started_ = true;
  start_ = now;
}

absl::Duration StopLadder::Offset() const {
  const std::array offsets = {absl::ZeroDuration(), times_.terminate, times_.kill, times_.lost};
  return taken_ < 4 ? offsets[static_cast<size_t>(taken_)] : absl::InfiniteDuration();
}

absl::Time StopLadder::Next() const {
  return started_ ? start_ + Offset() : absl::InfiniteFuture();
}

std::optional<StopLadder::Action> StopLadder::Due(absl::Time now) {
  if (now < Next()) return std::nullopt;
  return static_cast<Action>(taken_++);
}

}  // namespace hbmtune::daemon

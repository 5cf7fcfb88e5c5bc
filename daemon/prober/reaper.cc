#include "daemon/prober/reaper.h"

#include <utility>

namespace hbmtune::daemon {

void Reaper::Keep(ChildProcess child) {
  absl::MutexLock lock(&mutex_);
  lost_.push_back(std::move(child));
}

std::vector<int64_t> Reaper::Reap() {
  std::vector<int64_t> gone;
  absl::MutexLock lock(&mutex_);
  std::erase_if(lost_, [&](ChildProcess& child) {
    if (!child.Reap()) return false;
    gone.push_back(child.pid());
    return true;
  });
  return gone;
}

}  // namespace hbmtune::daemon

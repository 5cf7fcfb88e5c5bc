#include "daemon/prober/reaper.h"

#include <utility>

namespace hbmtune::daemon {

void Reaper::Keep(std::unique_ptr<ProbeLink> probe, int64_t pid) {
  absl::MutexLock lock(&mutex_);
  lost_.push_back({std::move(probe), pid});
}

std::vector<int64_t> Reaper::Reap() {
  std::vector<int64_t> gone;
  absl::MutexLock lock(&mutex_);
  std::erase_if(lost_, [&](Lost& lost) {
    if (!lost.probe->Ended()) return false;
    gone.push_back(lost.pid);
    return true;
  });
  return gone;
}

}  // namespace hbmtune::daemon

#pragma once

#include <absl/time/time.h>

#include <optional>

#include "daemon/base/unique_fd.h"

namespace hbmtune::daemon {

// Takes SIGTERM, SIGINT and SIGHUP out of the way of every thread, to be waited for. Made before
// the first thread.
class Signals {
 public:
  Signals();
  // The next signal, or nothing when the time is over.
  std::optional<int> Wait(absl::Duration patience);

 private:
  UniqueFd fd_;
};

}  // namespace hbmtune::daemon

#pragma once

#include <sys/eventfd.h>

#include <atomic>

#include "daemon/base/unique_fd.h"

namespace hbmtune::daemon {

// Tells a running trial to stop. Any thread; once cancelled it stays so.
class Cancellation {
 public:
  Cancellation() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void Cancel() {
    cancelled_ = true;
    eventfd_write(event_.get(), 1);
  }
  bool cancelled() const { return cancelled_; }
  // Readable once cancelled: to poll.
  int fd() const { return event_.get(); }

 private:
  std::atomic<bool> cancelled_ = false;
  UniqueFd event_;
};

}  // namespace hbmtune::daemon

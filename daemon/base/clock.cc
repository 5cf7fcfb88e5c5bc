#include "daemon/base/clock.h"

#include <absl/time/clock.h>
#include <time.h>

#include <fstream>

namespace hbmtune::daemon {

absl::Time SystemClock::Now() const { return absl::Now(); }

absl::Duration SystemClock::SinceBoot() const {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::DurationFromTimespec(now);
}

std::string SystemClock::BootId() const {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

}  // namespace hbmtune::daemon

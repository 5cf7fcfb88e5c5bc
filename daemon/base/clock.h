#pragma once

#include <absl/time/time.h>

#include <string>

namespace hbmtune::daemon {

// Time as the daemon sees it; tests hold their own. Any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  // Wall time, for people and records.
  virtual absl::Time Now() const = 0;
  // Since the machine started, suspends included (CLOCK_BOOTTIME): what deadlines are kept in.
  virtual absl::Duration SinceBoot() const = 0;
  // Identifies the boot that SinceBoot counts from.
  virtual std::string BootId() const = 0;
};

class SystemClock final : public Clock {
 public:
  absl::Time Now() const override;
  absl::Duration SinceBoot() const override;
  std::string BootId() const override;
};

}  // namespace hbmtune::daemon

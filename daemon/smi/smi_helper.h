#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/prober/child_process.h"
#include "daemon/smi/rocm_smi.h"

namespace hbmtune::daemon {

// The daemon's end of hbmtune-smi: every call has a deadline, and a helper that died, wedged or
// talked nonsense is ended and left alone for a while that doubles, so that it costs nothing.
// One thread at a time. Ignores SIGPIPE for the process.
class SmiHelper {
 public:
  struct Options {
    std::string program;
    std::vector<std::string> arguments;
    absl::Duration deadline = absl::Seconds(3);
    absl::Duration first_pause = absl::Seconds(10);
    absl::Duration longest_pause = absl::Minutes(10);
  };

  SmiHelper(const Clock& clock, Options options);
  ~SmiHelper();
  SmiHelper(const SmiHelper&) = delete;
  SmiHelper& operator=(const SmiHelper&) = delete;

  // Starts the helper if need be. UNAVAILABLE while it rests, DEADLINE_EXCEEDED when it wedged,
  // ABORTED when it died, FAILED_PRECONDITION with its own sentence when the library is no use.
  absl::StatusOr<std::vector<SmiSample>> Sample();
  // Ends the helper; the next Sample starts it again. While a probe runs there must be none.
  void Stop();
  int64_t pid() const { return child_ ? child_->pid() : 0; }  // 0 when it does not run

 private:
  absl::Status Start();
  absl::StatusOr<std::string> Ask();
  absl::Status Fail(absl::Status status);

  const Clock& clock_;
  const Options options_;
  std::optional<ChildProcess> child_;
  std::string received_;
  absl::Duration pause_;
  absl::Duration resume_at_ = absl::ZeroDuration();  // since boot
};

}  // namespace hbmtune::daemon

#pragma once

#include <string_view>

namespace hbmtune::daemon {

// A place in the code at which a test lets the daemon die: HBMTUNE_FAILPOINT=NAME:N in the
// environment kills the process (SIGKILL) when it passes the place NAME for the Nth time (the
// first, without N). Unset, a place costs one comparison. Any thread.
//
//   trial-stored     the trial's row is on disk, its probe has not been started
//   probe-started    the probe runs
//   probe-ended      the probe is gone, its result is not in the database
//   trial-written    inside the transaction of a result, before its COMMIT
//   trial-committed  after that COMMIT
//   cancel-stored    a study's cancel is on disk, nobody has been told
//   lease-written    inside the transaction of a lease
//   lease-committed  after it, before the answer
void Failpoint(std::string_view name);

}  // namespace hbmtune::daemon

#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "daemon/base/lock_file.h"
#include "daemon/base/log.h"
#include "daemon/prober/cancellation.h"
#include "daemon/prober/stop_ladder.h"

namespace hbmtune::daemon {

// The lock of one device: DIRECTORY/DEVICE.lock. A probe inherits it, so it is held until the probe
// is really gone, whatever became of the daemon that started it. Any user's daemon may take it: who
// gets at the folder decides.
//
// A probe whose daemon died sees end of file on stdin and ends by itself within moments; one that
// still holds the lock after `patience` is stopped as any probe is (StopLadder), if it really is
// one of ours and has lost its daemon: the process that the file names runs `probe_path`, and its
// parent is no daemon. FAILED_PRECONDITION names the holder if it is somebody else, CANCELLED if
// `cancellation` came first. One that the file calls a unit's (kInUnit) is never signalled: it may
// belong to a daemon that lives, and ends by itself when that dies.
inline constexpr char kInUnit[] = "unit";  // after the pid in the lock's file

struct DeviceLockRequest {
  std::string directory;
  std::string device;
  std::string probe_path;
  absl::Duration patience = absl::Seconds(2);
  StopLadder::Times stop;
};
absl::StatusOr<LockFile> LockDevice(const DeviceLockRequest& request,
                                    const Cancellation& cancellation, const Log& log);

}  // namespace hbmtune::daemon

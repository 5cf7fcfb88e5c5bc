#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/store/database.h"

namespace hbmtune::daemon {

// Opens STATE_DIR/hbmtune.db with the newest schema. A file that is no database, or that fails
// SQLite's quick check, is moved aside (hbmtune.db.corrupt-TIME, its -wal and -shm with it), never
// deleted, and a new one is begun; the log says so.
absl::StatusOr<std::unique_ptr<Database>> OpenStore(const std::string& state_dir,
                                                    const Clock& clock, const Log& log);

// Makes the directory and its parents (mode 0700) unless it is there. PERMISSION_DENIED names the
// directory that cannot be made or written. An empty path is the current directory.
absl::Status EnsureDirectory(const std::string& path);

}  // namespace hbmtune::daemon

#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "daemon/prober/probe_link.h"

namespace hbmtune::daemon {

// Starts the program as a child, with `lock_fd` as descriptor 3. It is stopped by the end of its
// input and signals to its process group. UNAVAILABLE names the program and why it cannot be
// started.
absl::StatusOr<std::unique_ptr<ProbeLink>> SpawnProbe(const std::string& program, int lock_fd);

}  // namespace hbmtune::daemon

#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/prober/probe_link.h"

namespace hbmtune::daemon {

// Asks for a probe at the socket of hbmtune-probe.socket, which starts one for each connection, as
// another user: no signal reaches it. `files` go with the request's first byte and are closed then.
//
// A stop ends our half of the connection. The probe ends by itself on that, by force after ten
// seconds (kernels/probe/stop.h); the connection is open until it and all that its unit started
// are gone.
//
// FAILED_PRECONDITION, one sentence with what to do, if nobody takes connections there: that may
// change.
absl::StatusOr<std::unique_ptr<ProbeLink>> ConnectProbe(const std::string& socket_path,
                                                        std::vector<UniqueFd> files);

}  // namespace hbmtune::daemon

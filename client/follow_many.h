#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <vector>

#include "client/connection.h"

namespace hbmtune::client {

// Sends a cancel for each study that has not ended and waits for the answers, but no longer than
// `time`: a daemon that has got it ends the study also when we are gone.
void CancelStudies(const Connection& connection, const std::vector<v1::Study>& studies,
                   std::chrono::milliseconds time);

// Looks at the studies several times a second until all have ended, and returns them as they are
// then; `look` is told of each look. The caller has noted two interruptions (client/interrupt.h):
// the first cancels all studies, which are then awaited, the second leaves (ABORTED). A daemon that
// goes away is awaited for 10 s, as by FollowStudy, then UNAVAILABLE; an
// interruption meanwhile is ABORTED.
absl::StatusOr<std::vector<v1::Study>> FollowStudies(
    const Connection& connection, std::vector<v1::Study> studies,
    const std::function<void(const std::vector<v1::Study>&)>& look);

}  // namespace hbmtune::client

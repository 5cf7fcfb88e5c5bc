#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "client/connection.h"
#include "client/progress.h"

namespace hbmtune::client {

// What Ctrl-C means while one follows a study.
enum class OnInterrupt { kCancelStudy, kLeave };

// Shows the study's progress until it has ended and returns it as it is then. The caller has
// noted interrupts (client/interrupt.h). An interruption either cancels the study, which is then
// awaited until a second one (ABORTED, once the cancel is sent), or returns ABORTED.
// A daemon that goes away is awaited for 10 s (it may be restarting: studies survive that), then
// UNAVAILABLE; an interruption meanwhile is ABORTED.
absl::StatusOr<v1::Study> FollowStudy(const Connection& connection, const std::string& study,
                                      OnInterrupt on_interrupt, ProgressView& view);

}  // namespace hbmtune::client

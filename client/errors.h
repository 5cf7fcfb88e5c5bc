#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

namespace hbmtune::client {

// What the shell sees.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  kNothingFits = 3,
  kUnreachable = 4,
  kInterrupted = 130,
};

// The daemon's error as a status of the same code whose message is one sentence: the violations
// of a BadRequest (each is a sentence of its own), or the daemon's message. CANCELLED, which a
// daemon that leaves sends, is UNAVAILABLE: calls that the client itself cancels are not asked.
absl::Status FromGrpc(const grpc::Status& status);

// INVALID_ARGUMENT, NOT_FOUND and OUT_OF_RANGE are the caller's mistakes (2), UNAVAILABLE and
// DEADLINE_EXCEEDED a daemon that cannot be reached (4), ABORTED an interruption (130).
ExitCode ExitCodeOf(const absl::Status& status);

// Writes "hbmtune: …" on stderr, on a terminal in lines of its width, and returns the exit code.
ExitCode Report(const absl::Status& status);

}  // namespace hbmtune::client

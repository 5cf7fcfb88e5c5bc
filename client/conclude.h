#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "client/connection.h"
#include "client/output_json.h"
#include "client/terminal.h"
#include "client/verbs.h"

namespace hbmtune::client {

// What the daemon recommends for a study; nothing yet is a FAILED_PRECONDITION.
absl::StatusOr<v1::Recommendation> RecommendFor(const Connection& connection,
                                                const std::string& study);

// How a study ended that was not cut short: done, or a sentence and the code that say why there is
// no config. Trials that all timed out or crashed say nothing of memory: that is a failure.
// `daemon_words`: flags that reach its daemon (ConnectionFlags::Words), for commands to go on with.
struct Verdict {
  ExitCode code = kDone;
  std::string sentence;
};
Verdict VerdictOn(const RecommendationOutput& recommendation,
                  const std::string& daemon_words = "");

// The end of `tune` and `watch`: shows what a study that has ended came to, in text or JSON, and
// says so by the exit code: nothing fits, interrupted, failed (its message is the error), done.
absl::StatusOr<ExitCode> Conclude(const Connection& connection, const v1::Study& study,
                                  const std::string& daemon_words, bool json,
                                  Terminal& terminal);

}  // namespace hbmtune::client

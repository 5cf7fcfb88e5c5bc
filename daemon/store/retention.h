#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <cstdint>

#include "daemon/store/database.h"

namespace hbmtune::daemon {

// How long things are kept; infinite for ever.
struct Retention {
  absl::Duration studies = absl::InfiniteDuration();  // after their end, with their trials
  absl::Duration minutes = absl::InfiniteDuration();
  absl::Duration findings = absl::InfiniteDuration();
};

struct Pruned {
  int64_t studies = 0;
  int64_t minutes = 0;
  int64_t findings = 0;
  bool any() const { return studies + minutes + findings > 0; }
};

// Deletes what is older, at most `most` rows of a kind, so that nobody waits long for the database
// (a study goes with its trials: some hundred rows); to be called again while it finds something.
absl::StatusOr<Pruned> Prune(Database& database, const Retention& retention, absl::Time now,
                             int64_t most = 100);

}  // namespace hbmtune::daemon

#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/time.h>

#include <cstdint>
#include <map>

#include "daemon/base/clock.h"

namespace hbmtune::daemon {

// How many requests a user may make: a bucket each, filled at a rate and never with more than twice
// what comes in a second. A request takes one; a stream is one request. Any thread.
class RateLimit {
 public:
  explicit RateLimit(const Clock& clock) : clock_(clock) {}

  // From now on; buckets keep what they have.
  void SetRate(double requests_per_second) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a request of the user's; how long to wait for the next one where there is none, else 0.
  absl::Duration Take(int64_t uid) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Bucket {
    double requests;
    absl::Duration filled;  // since boot
  };

  const Clock& clock_;
  absl::Mutex mutex_;
  double rate_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<int64_t, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);  // one for each user that ever called
};

}  // namespace hbmtune::daemon

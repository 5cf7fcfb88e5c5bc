#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/time.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "hbmtune/v1/tuning.pb.h"

namespace hbmtune::daemon {

// Answers to the same question, kept as messages until the store has changed (StudyStore::version)
// or ten seconds have passed (a device's profile may have). A question is its request's bytes. Any
// thread.
class KeptAnswers {
 public:
  using Answer = std::shared_ptr<const v1::Recommendation>;

  // Null if there is none for this version.
  Answer Find(const std::string& question, int64_t version, absl::Duration now) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `version` and `now` as they were before the answer was worked out.
  void Keep(const std::string& question, int64_t version, absl::Duration now, Answer answer)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr size_t kMostKept = 1000;
  static constexpr absl::Duration kLongest = absl::Seconds(10);
  struct Kept {
    int64_t version;
    absl::Duration since;
    Answer answer;
  };

  mutable absl::Mutex mutex_;
  std::unordered_map<std::string, Kept> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon

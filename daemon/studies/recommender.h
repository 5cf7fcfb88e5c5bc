#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "daemon/devices/catalogue.h"
#include "daemon/store/study_store.h"
#include "daemon/studies/study.h"
#include "tuner/recommend/recommend.h"

namespace hbmtune::daemon {

// What a study has shown so far: the best config, or why nothing fits.
struct Advice {
  StudyRecord study;
  std::optional<tuner::Recommendation> recommendation;
  std::optional<tuner::Shortfall> shortfall;
  Ceiling ceiling;  // what was applied, every figure filled in
};

// Answers from finished trials. The answer for a study is kept until it has one more finished
// trial, so a repeated question costs a look-up. Any thread.
class Recommender {
 public:
  Recommender(StudyStore& store, const Catalogue& catalogue)
      : store_(store), catalogue_(catalogue) {}

  // FAILED_PRECONDITION (NO_TRIALS) if no trial of it has fitted yet and it still runs, or
  // if it was cancelled or failed before one ended.
  absl::StatusOr<std::shared_ptr<const Advice>> ForStudy(const StudyRecord& study)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // From the study of this workload on this device with the strongest evidence, the newest of
  // those. NOT_FOUND (NO_STUDY) if there is none with a fitting trial.
  absl::StatusOr<std::shared_ptr<const Advice>> ForWorkload(const Workload& workload,
                                                            const std::string& device)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::StatusOr<Advice> Work(const StudyRecord& study);

  // Studies whose answers are kept; the oldest go first.
  static constexpr size_t kMostKept = 1000;
  struct Kept {
    int64_t finished_trials = 0;
    bool ended = false;
    std::shared_ptr<const Advice> advice;
  };

  StudyStore& store_;
  const Catalogue& catalogue_;
  absl::Mutex mutex_;
  std::map<int64_t, Kept> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon

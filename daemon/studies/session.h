#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/leases/arbiter.h"
#include "daemon/prober/cancellation.h"
#include "daemon/store/study_store.h"
#include "daemon/studies/event_hub.h"
#include "daemon/studies/plan.h"
#include "daemon/studies/study.h"
#include "tuner/search/designer.h"

namespace hbmtune::daemon {

class ClientProbes;

// A study that runs: hands out trials and takes their results, whoever runs them. Each trial's row
// is on disk before the trial is handed out, each result before Complete() returns. Any thread.
class StudySession {
 public:
  struct World {
    StudyStore& store;
    EventHub& hub;
    const Clock& clock;
    DeviceArbiter& arbiter;
  };
  // Continues where the stored trials end. A trial that has no end (its prober died with the daemon
  // or the node) is handed out again, first.
  static absl::StatusOr<std::unique_ptr<StudySession>> Open(const World& world,
                                                            const Catalogue& catalogue,
                                                            StudyRecord record);

  // What to run next; no trial and why there is none when the study is over; no trial and `wait`
  // when a running one must end first.
  struct Suggestion {
    std::optional<TrialRecord> trial;
    bool wait = false;
    std::string why;
    bool give_up = false;  // `trial` was cut short too often: only its result is looked for
  };
  // The search for it counts in the study's elapsed time, and ends soon once `cancellation` is set
  // or the budget is spent. RESOURCE_EXHAUSTED: the row could not be written; ask again later,
  // nothing has changed.
  absl::StatusOr<Suggestion> Suggest(const Cancellation* cancellation = nullptr)
      ABSL_LOCKS_EXCLUDED(work_, mutex_);

  // The trials that have no end, of a study that is to end: for Complete, where a result is found.
  std::vector<TrialRecord> TakeCutShort() ABSL_LOCKS_EXCLUDED(work_);

  // What is to be stored of a trial with `give_up` that has left no result.
  static Measurement GivenUp(const TrialRecord& trial);

  // Stores the result. RESOURCE_EXHAUSTED: not stored; call again later with the same.
  absl::Status Complete(const TrialRecord& trial) ABSL_LOCKS_EXCLUDED(work_, mutex_);
  // The trial did not count (cancelled): its row says so, if it can be written.
  void Abandon(const TrialRecord& trial) ABSL_LOCKS_EXCLUDED(work_, mutex_);

  absl::StatusOr<Estimate> EstimateOf(const TrainConfig& config) const {
    return estimator_(config);
  }
  ~StudySession();
  StudyRecord Snapshot() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes state, message and times, and tells the watchers.
  absl::Status SetState(StudyState state, const std::string& message) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells the watchers what the study waits for; not stored.
  void SetMessage(const std::string& message) ABSL_LOCKS_EXCLUDED(mutex_);
  void Progress(const TrialProgress& progress);

  const StudyPlan& plan() const { return plan_; }
  // For a study whose trials clients run; null for the others.
  ClientProbes* client_probes() const { return client_probes_.get(); }
  int64_t id() const { return id_; }

 private:
  StudySession(const World& world, StudyPlan plan, StudyRecord record);
  absl::Status Load() ABSL_LOCKS_EXCLUDED(work_, mutex_);
  // A trial with its estimate, or why there is none.
  absl::StatusOr<Suggestion> Search(const Cancellation* cancellation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Suggestion> Retry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_);
  absl::StatusOr<Suggestion> HandOut(TrialRecord trial) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_);
  absl::Status Store(const TrialRecord& trial) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(const TrialRecord& trial, StudyProgress& progress) const;

  const World world_;
  const StudyPlan plan_;
  const int64_t id_;
  const StudySpec spec_;
  tuner::Estimator estimator_;

  // Held while the designer thinks, which may take a second; taken before mutex_.
  absl::Mutex work_;
  std::unique_ptr<tuner::Designer> designer_ ABSL_GUARDED_BY(work_);
  tuner::History history_ ABSL_GUARDED_BY(work_);
  std::vector<TrialRecord> cut_short_ ABSL_GUARDED_BY(work_);  // to hand out again
  std::map<int64_t, size_t> running_ ABSL_GUARDED_BY(work_);   // number -> place in history_
  int64_t last_number_ ABSL_GUARDED_BY(work_) = 0;
  // The searches before, and the one that runs: when it began and what ends it.
  double search_seconds_ ABSL_GUARDED_BY(work_) = 0;
  absl::Time search_start_ ABSL_GUARDED_BY(work_) = absl::InfiniteFuture();
  const Cancellation* search_cancellation_ ABSL_GUARDED_BY(work_) = nullptr;

  mutable absl::Mutex mutex_;
  StudyRecord record_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<ClientProbes> client_probes_;  // constant after Open
};

}  // namespace hbmtune::daemon

#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/devices/catalogue.h"
#include "daemon/prober/prober.h"
#include "daemon/store/study_store.h"
#include "daemon/studies/device_queue.h"
#include "daemon/studies/event_hub.h"
#include "daemon/studies/runner.h"

namespace hbmtune::daemon {

// All studies of this daemon: takes them in, runs one a device, lets them be watched and ended. Any
// thread. Errors carry the details that the services send (base/errors.h).
class StudyManager {
 public:
  struct Parts {
    StudyStore& store;
    const Catalogue& catalogue;
    const Prober& prober;
    DeviceArbiter& arbiter;
    GpuGuard& gpus;
    const Clock& clock;
    const Log& log;
    StudyRunner::TrialCounter count_trial;
    StudyRunner::NodeHold node = {};
  };
  explicit StudyManager(Parts parts);
  ~StudyManager();  // drains, and waits for it

  // Queues what an earlier daemon left unfinished: to go on, or if it was cancelled to end.
  absl::Status Recover();

  // Most studies of one user that wait or run; without a call, no limit.
  void SetMostOfUser(int64_t most) { most_of_user_ = most; }

  // Checks, stores and queues a study. The same request id of the same caller returns the study
  // that it made; ALREADY_EXISTS (REQUEST_ID_REUSED) if it asked for something else then.
  // RESOURCE_EXHAUSTED (QUOTA_EXCEEDED) if the user has too many that wait or run;
  // FAILED_PRECONDITION (NOT_ADMITTED) if the node's policy lets no probe of it begin.
  absl::StatusOr<StudyRecord> Create(const StudySpec& spec, int64_t owner_uid,
                                     const std::string& client_request_id)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // As it is now; the message of one that is queued says what it waits for.
  absl::StatusOr<StudyRecord> Get(int64_t study_id) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::vector<StudyRecord>> List(int64_t before, int64_t limit)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends a study; `done` is called once, with its last state, when it has ended: at once, or later
  // by the study's thread. The cancel is on disk before anything is stopped, so it outlives this
  // daemon; where that cannot be written it holds for as long as the daemon lives. `done` gets
  // RESOURCE_EXHAUSTED when the end cannot be stored now: the study runs nothing, and ends when it
  // can.
  using Done = std::function<void(absl::StatusOr<StudyRecord>)>;
  void Cancel(int64_t study_id, const std::string& why, Done done) ABSL_LOCKS_EXCLUDED(mutex_);
  // First the study as it is, then what happens to it.
  absl::StatusOr<std::shared_ptr<Subscription>> Watch(int64_t study_id)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The session of a study that runs. FAILED_PRECONDITION (NOT_RUNNING) if it does not.
  absl::StatusOr<std::shared_ptr<StudySession>> SessionOf(int64_t study_id)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // A job or an admin needs the device: its running trial is stopped, the study waits.
  void InterruptTrialOn(const std::string& device) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Load {
    int64_t running_study = 0;  // 0 for none
    int64_t waiting = 0;
  };
  Load LoadOf(const std::string& device) const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t running_studies() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Cancels all studies that are not detached: their clients are gone.
  void CancelAttached(const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Any, or of those alone that go on without their clients.
  bool HasUnfinished(bool detached_alone = false);

  // Stops the running trials and starts none; studies stay as they are, for the next start. New
  // ones are refused with UNAVAILABLE. Does not wait: the destructor does.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  DeviceQueue& QueueOf(const std::string& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DeviceQueue::Callbacks MakeCallbacks();
  absl::StatusOr<StudyRecord> Remember(StudyRecord record, const std::string& request_hash)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From the store, with what is known of its cancel.
  absl::StatusOr<StudyRecord> Stored(int64_t study_id) const ABSL_LOCKS_EXCLUDED(mutex_);
  // It cannot run: it has failed, or if it was cancelled has ended as that.
  void FailStudy(int64_t study_id, const absl::Status& why);
  void NoteCancel(const StudyRecord& record, const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<StudyRecord> EndWaiting(StudyRecord record, const std::string& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Those who wait for its end.
  std::vector<Done> TakeWaiters(int64_t study_id) ABSL_LOCKS_EXCLUDED(mutex_);
  // What a queued study waits for; "" if nothing keeps it from running.
  std::string WaitReason(const StudyRecord& record) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Those that wait for the device are told anew what they wait for.
  void TellQueued(const std::string& device) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<StudyRecord> RunningRecord(int64_t study_id) const ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status CheckQuota(int64_t owner_uid) const;

  const Parts parts_;
  std::atomic<int64_t> most_of_user_ = std::numeric_limits<int64_t>::max();
  EventHub hub_;
  mutable absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::multimap<int64_t, Done> waiters_ ABSL_GUARDED_BY(mutex_);
  // Cancels that could not be stored, with their reasons.
  std::map<int64_t, std::string> unstored_cancels_ ABSL_GUARDED_BY(mutex_);
  // Destroyed first: their threads use everything above.
  std::map<std::string, std::unique_ptr<DeviceQueue>> queues_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon

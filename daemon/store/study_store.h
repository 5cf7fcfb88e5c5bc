#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/store/database.h"
#include "daemon/studies/study.h"

namespace hbmtune::daemon {

// Studies and trials on disk. Every call that returned OK is durable. Any thread; errors as
// Database has them, NOT_FOUND for a study or trial that is not there.
class StudyStore {
 public:
  explicit StudyStore(Database& database) : database_(database) {}

  // Stores `record` and sets its id.
  absl::Status CreateStudy(StudyRecord& record);
  absl::StatusOr<StudyRecord> GetStudy(int64_t id);
  // The study that this caller made with this request id, if any, and its RequestHash.
  struct Known {
    int64_t study_id;
    std::string request_hash;
  };
  absl::StatusOr<std::optional<Known>> FindRequest(int64_t owner_uid,
                                                   const std::string& client_request_id);
  // Newest first: those with an id under `before` (0: all), at most `limit`.
  absl::StatusOr<std::vector<StudyRecord>> ListStudies(int64_t before, int64_t limit);
  // Oldest first.
  absl::StatusOr<std::vector<StudyRecord>> UnfinishedStudies();
  // How many studies of a user wait or run.
  absl::StatusOr<int64_t> UnfinishedOf(int64_t owner_uid);
  // Newest first: studies of this workload on this device that have a fitting trial.
  absl::StatusOr<std::vector<int64_t>> StudiesOf(const Workload& workload,
                                                 const std::string& device);
  // Writes state, message, progress, space and times. One that has ended has no trial that runs:
  // those without an end are abandoned with it.
  absl::Status UpdateStudy(const StudyRecord& record);
  // An unfinished study was cancelled, for this reason. The first reason stands.
  absl::Status NoteCancel(int64_t study_id, const std::string& why);

  // Writes a trial that is about to run: a new row, or one more attempt of an old one.
  absl::Status StartTrial(const TrialRecord& trial);
  // Which process runs it, for whoever finds it after a crash.
  absl::Status SetProber(const TrialRecord& trial, int64_t pid, const std::string& boot_id);
  // Writes results of a trial and the progress of its study, in one transaction. A trial that was
  // never started (an estimate needs no process) is inserted.
  absl::Status FinishTrial(const TrialRecord& trial, const StudyRecord& study);
  // The trial did not count.
  absl::Status AbandonTrial(const TrialRecord& trial);
  // Names of the trials that have no end yet, of studies that go on.
  absl::StatusOr<std::set<std::string>> UnfinishedTrials();
  absl::StatusOr<TrialRecord> GetTrial(int64_t study_id, int64_t number);
  // In order: those with a number over `after`, at most `limit`.
  absl::StatusOr<std::vector<TrialRecord>> ListTrials(int64_t study_id, int64_t after,
                                                      int64_t limit);

  std::string degraded() const { return database_.degraded(); }
  // Counts the changes of studies and trials. What was read at a count is still right for a
  // question (device and WorkloadKey: QuestionOf) whose last change has no higher one.
  int64_t changes() const { return changes_; }
  int64_t LastChange(const std::string& question) const ABSL_LOCKS_EXCLUDED(mutex_);
  static std::string QuestionOf(const StudySpec& spec);
  void NoteChange(const StudySpec& spec) ABSL_LOCKS_EXCLUDED(mutex_);
  // Anything may have changed (retention).
  void NoteChangeOfAll() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status WriteStudy(const StudyRecord& record);  // within a transaction
  absl::Status InsertTrial(const TrialRecord& trial);
  absl::Status InsertBreakdown(const TrialRecord& trial, std::string_view source,
                               const std::vector<CategoryBytes>& breakdown);
  absl::Status ReadBreakdowns(std::vector<TrialRecord>& trials);
  absl::Status ReadPins(StudyRecord& record);

  // `status`, noting the change if it is OK.
  absl::Status Changed(const StudyRecord& record, absl::Status status);

  Database& database_;
  std::atomic<int64_t> changes_ = 0;
  mutable absl::Mutex mutex_;
  std::unordered_map<std::string, int64_t> last_change_ ABSL_GUARDED_BY(mutex_);
  int64_t last_change_of_all_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hbmtune::daemon

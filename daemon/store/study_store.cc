#include "daemon/store/study_store.h"

#include <absl/strings/str_cat.h>

#include <limits>

#include "daemon/base/failpoint.h"
#include "daemon/store/columns.h"
#include "daemon/store/rows.h"

namespace hbmtune::daemon {
namespace {

std::vector<SqlValue> Key(const TrialRecord& trial) { return {trial.study_id, trial.number}; }

absl::Status NoTrial(int64_t study_id, int64_t number) {
  return absl::NotFoundError(absl::StrCat("there is no trial ", TrialName(study_id, number)));
}

}  // namespace

absl::Status StudyStore::Changed(const StudyRecord& record, absl::Status status) {
  if (status.ok()) NoteChange(record.spec);
  return status;
}

std::string StudyStore::QuestionOf(const StudySpec& spec) {
  return absl::StrCat(spec.device, " ", WorkloadKey(spec.workload));
}

void StudyStore::NoteChange(const StudySpec& spec) {
  const std::string question = QuestionOf(spec);
  absl::MutexLock lock(&mutex_);
  last_change_[question] = ++changes_;
}

void StudyStore::NoteChangeOfAll() {
  absl::MutexLock lock(&mutex_);
  last_change_of_all_ = ++changes_;
}

int64_t StudyStore::LastChange(const std::string& question) const {
  absl::MutexLock lock(&mutex_);
  auto found = last_change_.find(question);
  return std::max(last_change_of_all_, found == last_change_.end() ? 0 : found->second);
}

absl::Status StudyStore::CreateStudy(StudyRecord& record) {
  return Changed(record, database_.Transact([&] {
    absl::Status status = Insert(database_, "studies", StudyColumns(record));
    if (!status.ok()) return status;
    record.id = database_.LastInsertId();
    for (const auto& [path, value] : record.spec.pins) {
      status = Insert(database_, "study_pins",
                      {{"study_id", record.id}, {"path", path}, {"value", value}});
      if (!status.ok()) return status;
    }
    return status;
  }));
}

absl::Status StudyStore::ReadPins(StudyRecord& record) {
  auto rows = database_.Query("SELECT path, value FROM study_pins WHERE study_id=?", {record.id});
  if (!rows.ok()) return rows.status();
  for (const Row& row : *rows) record.spec.pins[row.Text("path")] = row.Text("value");
  return absl::OkStatus();
}

absl::StatusOr<StudyRecord> StudyStore::GetStudy(int64_t id) {
  auto rows = database_.Query("SELECT * FROM studies WHERE id=?", {id});
  if (!rows.ok()) return rows.status();
  if (rows->empty()) {
    return absl::NotFoundError(absl::StrCat("there is no study ", StudyName(id)));
  }
  StudyRecord record = StudyFromRow(rows->front());
  if (absl::Status status = ReadPins(record); !status.ok()) return status;
  return record;
}

absl::StatusOr<std::optional<StudyStore::Known>> StudyStore::FindRequest(
    int64_t owner_uid, const std::string& client_request_id) {
  auto rows = database_.Query(
      "SELECT id, request_hash FROM studies WHERE owner_uid=? AND client_request_id=?",
      {owner_uid, client_request_id});
  if (!rows.ok()) return rows.status();
  if (rows->empty()) return std::nullopt;
  return Known{rows->front().Int("id"), rows->front().Text("request_hash")};
}

absl::StatusOr<std::vector<StudyRecord>> StudyStore::ListStudies(int64_t before, int64_t limit) {
  if (before <= 0) before = std::numeric_limits<int64_t>::max();
  auto rows = database_.Query("SELECT * FROM studies WHERE id<? ORDER BY id DESC LIMIT ?",
                              {before, limit});
  if (!rows.ok()) return rows.status();
  std::vector<StudyRecord> records;
  for (const Row& row : *rows) {
    records.push_back(StudyFromRow(row));
    if (absl::Status status = ReadPins(records.back()); !status.ok()) return status;
  }
  return records;
}

absl::StatusOr<std::vector<StudyRecord>> StudyStore::UnfinishedStudies() {
  auto rows = database_.Query("SELECT * FROM studies WHERE state IN (?,?) ORDER BY id",
                              {std::string(Name(StudyState::kQueued)),
                               std::string(Name(StudyState::kRunning))});
  if (!rows.ok()) return rows.status();
  std::vector<StudyRecord> records;
  for (const Row& row : *rows) {
    records.push_back(StudyFromRow(row));
    if (absl::Status status = ReadPins(records.back()); !status.ok()) return status;
  }
  return records;
}

absl::StatusOr<int64_t> StudyStore::UnfinishedOf(int64_t owner_uid) {
  auto rows = database_.Query(
      "SELECT COUNT(*) AS count FROM studies WHERE owner_uid=? AND state IN ('QUEUED','RUNNING')",
      {owner_uid});
  if (!rows.ok()) return rows.status();
  return rows->front().Int("count");
}

absl::StatusOr<std::vector<int64_t>> StudyStore::StudiesOf(const Workload& workload,
                                                           const std::string& device) {
  auto rows = database_.Query(
      "SELECT id FROM studies WHERE workload_hash=? AND device=? AND progress_fitting_trials>0"
      " ORDER BY id DESC LIMIT 100",
      {WorkloadKey(workload), device});
  if (!rows.ok()) return rows.status();
  std::vector<int64_t> ids;
  for (const Row& row : *rows) ids.push_back(row.Int("id"));
  return ids;
}

absl::Status StudyStore::WriteStudy(const StudyRecord& record) {
  absl::Status status =
      Update(database_, "studies", StudyStateColumns(record), "id=?", {record.id});
  if (!status.ok() || !record.ended()) return status;
  return Update(database_, "trials", {{"state", std::string(Name(TrialState::kAbandoned))}},
                "study_id=? AND state=?", {record.id, std::string(Name(TrialState::kRunning))});
}

absl::Status StudyStore::UpdateStudy(const StudyRecord& record) {
  return Changed(record, database_.Transact([&] { return WriteStudy(record); }));
}

absl::Status StudyStore::NoteCancel(int64_t study_id, const std::string& why) {
  return Update(database_, "studies", {{"cancel_reason", why}},
                "id=? AND cancel_reason IS NULL AND state IN ('QUEUED','RUNNING')", {study_id});
}

absl::Status StudyStore::InsertTrial(const TrialRecord& trial) {
  absl::Status status = Insert(database_, "trials", TrialColumns(trial));
  if (!status.ok() || !trial.estimate) return status;
  return InsertBreakdown(trial, "estimate", trial.estimate->breakdown);
}

absl::Status StudyStore::StartTrial(const TrialRecord& trial) {
  return database_.Transact([&] {
    if (trial.attempts > 1) {
      return Update(database_, "trials", TrialStateColumns(trial), "study_id=? AND number=?",
                    Key(trial));
    }
    return InsertTrial(trial);
  });
}

absl::Status StudyStore::SetProber(const TrialRecord& trial, int64_t pid,
                                   const std::string& boot_id) {
  return Update(database_, "trials", {{"prober_pid", pid}, {"prober_boot_id", boot_id}},
                "study_id=? AND number=?", Key(trial));
}

absl::Status StudyStore::FinishTrial(const TrialRecord& trial, const StudyRecord& study) {
  return Changed(study, database_.Transact([&]() -> absl::Status {
    auto known = database_.Query("SELECT 1 FROM trials WHERE study_id=? AND number=?", Key(trial));
    if (!known.ok()) return known.status();
    absl::Status status;
    if (known->empty()) {
      status = InsertTrial(trial);
    } else {
      status = Update(database_, "trials", TrialStateColumns(trial), "study_id=? AND number=?",
                      Key(trial));
    }
    if (status.ok() && trial.measurement) {
      status = Update(database_, "trials", MeasurementColumns(*trial.measurement),
                      "study_id=? AND number=?", Key(trial));
      if (status.ok()) status = InsertBreakdown(trial, "measurement", trial.measurement->breakdown);
    }
    if (status.ok()) status = WriteStudy(study);
    Failpoint("trial-written");
    return status;
  }));
}

absl::Status StudyStore::InsertBreakdown(const TrialRecord& trial, std::string_view source,
                                         const std::vector<CategoryBytes>& breakdown) {
  int64_t position = 0;
  for (const CategoryBytes& owner : breakdown) {
    absl::Status status = Insert(database_, "trial_breakdowns",
                                 {{"study_id", trial.study_id},
                                  {"number", trial.number},
                                  {"source", std::string(source)},
                                  {"position", position++},
                                  {"category", std::string(Name(owner.category))},
                                  {"bytes", owner.bytes}});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::set<std::string>> StudyStore::UnfinishedTrials() {
  auto rows = database_.Query(
      "SELECT study_id, number FROM trials JOIN studies ON study_id=id"
      " WHERE trials.state='RUNNING' AND studies.state IN ('QUEUED','RUNNING')");
  if (!rows.ok()) return rows.status();
  std::set<std::string> names;
  for (const Row& row : *rows) names.insert(TrialName(row.Int("study_id"), row.Int("number")));
  return names;
}

absl::Status StudyStore::AbandonTrial(const TrialRecord& trial) {
  return Update(database_, "trials", {{"state", std::string(Name(TrialState::kAbandoned))}},
                "study_id=? AND number=?", Key(trial));
}

absl::Status StudyStore::ReadBreakdowns(std::vector<TrialRecord>& trials) {
  if (trials.empty()) return absl::OkStatus();
  auto rows = database_.Query(
      "SELECT number, source, category, bytes FROM trial_breakdowns"
      " WHERE study_id=? AND number BETWEEN ? AND ? ORDER BY number, source, position",
      {trials.front().study_id, trials.front().number, trials.back().number});
  if (!rows.ok()) return rows.status();
  auto trial = trials.begin();
  for (const Row& row : *rows) {
    while (trial != trials.end() && trial->number < row.Int("number")) ++trial;
    if (trial == trials.end()) break;
    CategoryBytes owner;
    if (auto category = ParseEnum<Category>(row.Text("category"))) owner.category = *category;
    owner.bytes = row.Int("bytes");
    if (row.Text("source") == "estimate" && trial->estimate) {
      trial->estimate->breakdown.push_back(owner);
    } else if (trial->measurement) {
      trial->measurement->breakdown.push_back(owner);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TrialRecord> StudyStore::GetTrial(int64_t study_id, int64_t number) {
  auto trials = ListTrials(study_id, number - 1, 1);
  if (!trials.ok()) return trials.status();
  if (trials->empty() || trials->front().number != number) return NoTrial(study_id, number);
  return trials->front();
}

absl::StatusOr<std::vector<TrialRecord>> StudyStore::ListTrials(int64_t study_id, int64_t after,
                                                                int64_t limit) {
  auto rows = database_.Query(
      "SELECT * FROM trials WHERE study_id=? AND number>? ORDER BY number LIMIT ?",
      {study_id, after, limit});
  if (!rows.ok()) return rows.status();
  std::vector<TrialRecord> trials;
  for (const Row& row : *rows) trials.push_back(TrialFromRow(row));
  if (absl::Status status = ReadBreakdowns(trials); !status.ok()) return status;
  return trials;
}

}  // namespace hbmtune::daemon

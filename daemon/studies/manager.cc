#include "daemon/studies/manager.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "daemon/base/errors.h"
#include "daemon/base/failpoint.h"

namespace hbmtune::daemon {
namespace {

// "studies/7 WHAT, but its end cannot be stored now: WHY"
absl::Status EndNotStored(int64_t study_id, const char* what, const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat(StudyName(study_id), " ", what,
                                               ", but its end cannot be stored now: ",
                                               why.message()));
}

}  // namespace

StudyManager::StudyManager(Parts parts) : parts_(std::move(parts)) {}

StudyManager::~StudyManager() {
  Drain();
  std::map<std::string, std::unique_ptr<DeviceQueue>> queues;
  {
    absl::MutexLock lock(&mutex_);
    queues.swap(queues_);
  }
  queues.clear();  // joins the threads, which may call us
}

DeviceQueue::Callbacks StudyManager::MakeCallbacks() {
  DeviceQueue::Callbacks callbacks;
  callbacks.open = [this](int64_t id) -> absl::StatusOr<std::unique_ptr<StudySession>> {
    auto record = Stored(id);
    if (!record.ok()) return record.status();
    return StudySession::Open({parts_.store, hub_, parts_.clock, parts_.arbiter},
                              parts_.catalogue, *std::move(record));
  };
  callbacks.run = [this](StudySession& session, StopRequest& stop) {
    const std::string cancelled = session.Snapshot().cancel_reason;
    if (!cancelled.empty()) stop.Set(StopReason::kCancel, cancelled);
    TellQueued(session.plan().device.name);
    StudyRunner(session, stop,
                {parts_.store, parts_.prober, parts_.arbiter, parts_.gpus, parts_.node,
                 parts_.clock, parts_.log, parts_.count_trial,
                 [this, &session] { TellQueued(session.plan().device.name); },
                 [this, id = session.id()](const absl::Status& why) {
                   for (const Done& done : TakeWaiters(id)) {
                     done(EndNotStored(id, "is told to stop", why));
                   }
                 }})
        .Run();
  };
  callbacks.failed_to_open = [this](int64_t id, const absl::Status& why) { FailStudy(id, why); };
  callbacks.left = [this](int64_t id) {
    for (const Done& done : TakeWaiters(id)) done(Get(id));
  };
  return callbacks;
}

DeviceQueue& StudyManager::QueueOf(const std::string& device) {
  auto& queue = queues_[device];
  if (queue == nullptr) queue = std::make_unique<DeviceQueue>(MakeCallbacks());
  return *queue;
}

absl::Status StudyManager::Recover() {
  auto unfinished = parts_.store.UnfinishedStudies();
  if (!unfinished.ok()) return unfinished.status();
  auto trials = parts_.store.UnfinishedTrials();
  if (!trials.ok()) return trials.status();
  parts_.prober.ForgetAllBut(*trials);
  absl::MutexLock lock(&mutex_);
  for (const StudyRecord& record : *unfinished) {
    parts_.log.Info(record.cancel_reason.empty() ? "study goes on after a restart"
                                                 : "cancelled study ends after a restart",
                    {{"study", record.id}, {"trials", record.progress.finished_trials}});
    QueueOf(record.spec.device).Enqueue(record.id);
  }
  return absl::OkStatus();
}

absl::StatusOr<StudyRecord> StudyManager::Create(const StudySpec& spec, int64_t owner_uid,
                                                 const std::string& client_request_id) {
  auto plan = MakePlan(spec, parts_.catalogue);
  if (!plan.ok()) return plan.status();
  if (!spec.client_probes && !plan->modelled()) {
    auto status = parts_.arbiter.Admit(plan->device.name, {spec.job_id, owner_uid});
    if (!status.ok()) return WithReason(status, "NOT_ADMITTED");
  }
  StudyRecord record;
  record.owner_uid = owner_uid;
  record.client_request_id = client_request_id;
  record.spec = spec;
  record.spec.device = plan->device.name;
  record.spec.ceiling = plan->ceiling;
  record.create_time = parts_.clock.Now();
  absl::MutexLock lock(&mutex_);
  if (draining_) return absl::UnavailableError("the daemon is leaving");
  return Remember(std::move(record), RequestHash(spec));
}

absl::StatusOr<StudyRecord> StudyManager::Remember(StudyRecord record,
                                                   const std::string& request_hash) {
  if (!record.client_request_id.empty()) {
    auto known = parts_.store.FindRequest(record.owner_uid, record.client_request_id);
    if (!known.ok()) return known.status();
    if (*known && (*known)->request_hash == request_hash) {
      return parts_.store.GetStudy((*known)->study_id);
    }
    if (*known) {
      return WithReason(absl::AlreadyExistsError(absl::StrCat(
                            "client_request_id '", record.client_request_id,
                            "' was used with another request, for ",
                            StudyName((*known)->study_id))),
                        "REQUEST_ID_REUSED", {{"study", StudyName((*known)->study_id)}});
    }
  }
  if (absl::Status status = CheckQuota(record.owner_uid); !status.ok()) return status;
  record.request_hash = request_hash;
  absl::Status status = parts_.store.CreateStudy(record);
  if (!status.ok()) return status;
  parts_.log.Info("study is queued", {{"study", record.id},
                                      {"device", record.spec.device},
                                      {"model", record.spec.workload.model.name},
                                      {"owner_uid", record.owner_uid}});
  QueueOf(record.spec.device).Enqueue(record.id);
  return record;
}

absl::Status StudyManager::CheckQuota(int64_t owner_uid) const {
  auto count = parts_.store.UnfinishedOf(owner_uid);
  if (!count.ok()) return count.status();
  const int64_t most = most_of_user_;
  if (*count < most) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                        "user ", owner_uid, " has ", *count,
                        " studies that wait or run, the most there may be: cancel one, or wait")),
                    "QUOTA_EXCEEDED", {{"most", absl::StrCat(most)}});
}

std::optional<StudyRecord> StudyManager::RunningRecord(int64_t study_id) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [device, queue] : queues_) {
    auto running = queue->Running();
    if (running && running->id == study_id) return running;
  }
  return std::nullopt;
}

absl::StatusOr<StudyRecord> StudyManager::Get(int64_t study_id) {
  if (auto running = RunningRecord(study_id)) return *running;
  auto record = parts_.store.GetStudy(study_id);
  if (absl::IsNotFound(record.status())) return WithReason(record.status(), "UNKNOWN_STUDY");
  if (record.ok() && record->state == StudyState::kQueued) record->message = WaitReason(*record);
  return record;
}

std::string StudyManager::WaitReason(const StudyRecord& record) const {
  absl::MutexLock lock(&mutex_);
  auto queue = queues_.find(record.spec.device);
  if (queue == queues_.end()) return "";
  const DeviceQueue::Order order = queue->second->order();
  auto place = std::find(order.waiting.begin(), order.waiting.end(), record.id);
  if (place == order.waiting.end() || order.running == 0) return "";
  std::string reason = absl::StrCat("study ", order.running, " runs on ", record.spec.device);
  // It may itself wait, for a job's lease or for the device's memory to come back.
  auto running = queue->second->Running();
  if (running && !running->message.empty()) absl::StrAppend(&reason, " (", running->message, ")");
  const auto before = place - order.waiting.begin();
  if (before > 0) absl::StrAppend(&reason, ", ", before, " more before this one");
  return reason;
}

void StudyManager::TellQueued(const std::string& device) {
  DeviceQueue::Order order;
  {
    absl::MutexLock lock(&mutex_);
    auto queue = queues_.find(device);
    if (queue != queues_.end()) order = queue->second->order();
  }
  for (int64_t id : order.waiting) {
    auto record = Get(id);
    if (!record.ok() || record->state != StudyState::kQueued) continue;
    hub_.Publish(id, *record);
    // It may have begun meanwhile: what is told last is what holds.
    if (auto running = RunningRecord(id)) hub_.Publish(id, *running);
  }
}

absl::StatusOr<std::vector<StudyRecord>> StudyManager::List(int64_t before, int64_t limit) {
  auto records = parts_.store.ListStudies(before, limit);
  if (!records.ok()) return records;
  for (StudyRecord& record : *records) {
    if (record.ended()) continue;
    if (auto running = RunningRecord(record.id)) {
      record = *std::move(running);
    } else if (record.state == StudyState::kQueued) {
      record.message = WaitReason(record);
    }
  }
  return records;
}

absl::StatusOr<StudyRecord> StudyManager::Stored(int64_t study_id) const {
  auto record = parts_.store.GetStudy(study_id);
  absl::MutexLock lock(&mutex_);
  auto unstored = unstored_cancels_.find(study_id);
  if (record.ok() && unstored != unstored_cancels_.end()) record->cancel_reason = unstored->second;
  return record;
}

void StudyManager::FailStudy(int64_t study_id, const absl::Status& why) {
  parts_.log.Error("study cannot run", {{"study", study_id}, {"error", why}});
  auto record = Stored(study_id);
  if (!record.ok()) return;
  const bool cancelled = !record->cancel_reason.empty();
  record->state = cancelled ? StudyState::kCancelled : StudyState::kFailed;
  record->message = cancelled ? record->cancel_reason : std::string(why.message());
  record->end_time = parts_.clock.Now();
  absl::Status status = parts_.store.UpdateStudy(*record);
  if (!status.ok()) {
    parts_.log.Error("cannot store a study", {{"study", study_id}, {"error", status}});
  }
  hub_.End(*record);
}

absl::StatusOr<StudyRecord> StudyManager::EndWaiting(StudyRecord record, const std::string& why) {
  record.state = StudyState::kCancelled;
  record.message = why;
  record.end_time = parts_.clock.Now();
  absl::Status status = parts_.store.UpdateStudy(record);
  if (status.ok()) {
    hub_.End(record);
    return record;
  }
  // Its turn will come: to end, as soon as that can be written.
  absl::MutexLock lock(&mutex_);
  unstored_cancels_[record.id] = why;
  QueueOf(record.spec.device).Enqueue(record.id);
  return EndNotStored(record.id, "will not run", status);
}

void StudyManager::NoteCancel(const StudyRecord& record, const std::string& why) {
  absl::Status status = parts_.store.NoteCancel(record.id, why);
  if (!status.ok()) {
    parts_.log.Warning("a cancel is not stored: a restart would undo it",
                       {{"study", record.id}, {"error", status}});
  }
  Failpoint("cancel-stored");
}

void StudyManager::Cancel(int64_t study_id, const std::string& why, Done done) {
  auto record = Get(study_id);
  if (!record.ok() || record->ended()) return done(std::move(record));
  NoteCancel(*record, why);
  auto found = DeviceQueue::Found::kNo;
  {
    absl::MutexLock lock(&mutex_);
    auto queue = queues_.find(record->spec.device);
    if (queue != queues_.end()) found = queue->second->Remove(study_id, why);
    // TakeWaiters takes the lock, so it cannot pass between the removal and this.
    if (found == DeviceQueue::Found::kRunning) {
      waiters_.emplace(study_id, std::move(done));
      return;
    }
  }
  if (found == DeviceQueue::Found::kWaiting) {
    const std::string device = record->spec.device;
    done(EndWaiting(*std::move(record), why));
    return TellQueued(device);
  }
  done(Get(study_id));  // it ended in between
}

std::vector<StudyManager::Done> StudyManager::TakeWaiters(int64_t study_id) {
  std::vector<Done> waiting;
  absl::MutexLock lock(&mutex_);
  auto [first, last] = waiters_.equal_range(study_id);
  for (auto entry = first; entry != last; ++entry) waiting.push_back(std::move(entry->second));
  waiters_.erase(first, last);
  return waiting;
}

absl::StatusOr<std::shared_ptr<Subscription>> StudyManager::Watch(int64_t study_id) {
  // Subscribed before it is read: nothing falls in between.
  auto subscription = hub_.Subscribe(study_id);
  auto record = Get(study_id);
  if (!record.ok()) return record.status();
  if (record->ended()) {
    hub_.End(*record);
  } else {
    hub_.Publish(study_id, *record);
  }
  return subscription;
}

absl::StatusOr<std::shared_ptr<StudySession>> StudyManager::SessionOf(int64_t study_id) {
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [device, queue] : queues_) {
      auto session = queue->RunningSession();
      if (session != nullptr && session->id() == study_id) return session;
    }
  }
  auto record = Get(study_id);
  if (!record.ok()) return record.status();
  return WithReason(absl::FailedPreconditionError(absl::StrCat(StudyName(study_id),
                                                               " does not run now")),
                    "NOT_RUNNING");
}

void StudyManager::InterruptTrialOn(const std::string& device) {
  absl::MutexLock lock(&mutex_);
  auto queue = queues_.find(device);
  if (queue != queues_.end()) queue->second->InterruptTrial();
}

StudyManager::Load StudyManager::LoadOf(const std::string& device) const {
  absl::MutexLock lock(&mutex_);
  auto queue = queues_.find(device);
  if (queue == queues_.end()) return {};
  auto running = queue->second->Running();
  return {running ? running->id : 0, static_cast<int64_t>(queue->second->order().waiting.size())};
}

int64_t StudyManager::running_studies() const {
  absl::MutexLock lock(&mutex_);
  int64_t count = 0;
  for (const auto& [device, queue] : queues_) count += queue->Running() ? 1 : 0;
  return count;
}

void StudyManager::CancelAttached(const std::string& why) {
  auto unfinished = parts_.store.UnfinishedStudies();
  if (!unfinished.ok()) return;
  for (const StudyRecord& record : *unfinished) {
    if (!record.spec.detached) Cancel(record.id, why, [](const auto&) {});
  }
}

bool StudyManager::HasUnfinished(bool detached_alone) {
  auto unfinished = parts_.store.UnfinishedStudies();
  return unfinished.ok() &&
         std::any_of(unfinished->begin(), unfinished->end(), [&](const StudyRecord& record) {
           return record.spec.detached || !detached_alone;
         });
}

void StudyManager::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  for (auto& [device, queue] : queues_) queue->Drain();
  hub_.EndAll();
}

}  // namespace hbmtune::daemon

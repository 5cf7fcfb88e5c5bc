#include "daemon/studies/client_probes.h"

#include <absl/strings/str_cat.h>

#include "daemon/base/errors.h"

namespace hbmtune::daemon {

absl::Status ClientProbes::TakeDevice() {
  for (const auto& [number, running] : running_) {
    if (!running.interrupted) continue;
    return absl::FailedPreconditionError("the device is needed: a trial on it is being stopped");
  }
  if (permit_) return absl::OkStatus();
  const StudyRecord study = session_.Snapshot();
  auto permit = arbiter_.BeginProbe(session_.plan().device.name,
                                    {study.spec.job_id, study.owner_uid});
  if (!permit.ok()) return permit.status();
  permit_.emplace(*std::move(permit));
  return absl::OkStatus();
}

void ClientProbes::GiveBackIfUnused() {
  if (running_.empty()) permit_.reset();
}

absl::StatusOr<ClientProbes::Running*> ClientProbes::Find(int64_t number,
                                                          const std::string& prober) {
  auto found = running_.find(number);
  if (found != running_.end() && found->second.prober == prober) return &found->second;
  return WithReason(absl::NotFoundError(absl::StrCat(TrialName(session_.id(), number),
                                                     " is not a trial of prober ", prober)),
                    "TRIAL_LOST");
}

absl::StatusOr<StudySession::Suggestion> ClientProbes::Suggest(const std::string& prober) {
  absl::MutexLock lock(&mutex_);
  for (auto& [number, running] : running_) {
    if (running.prober != prober) continue;
    running.heard = clock_.SinceBoot();
    return StudySession::Suggestion{running.trial, false, running.trial.why};
  }
  if (stopping_) return StudySession::Suggestion{std::nullopt, false, "the study is stopping"};
  if (absl::Status refused = TakeDevice(); !refused.ok()) {
    session_.SetMessage(absl::StrCat("waits: ", std::string(refused.message())));
    return StudySession::Suggestion{std::nullopt, true, std::string(refused.message())};
  }
  session_.SetMessage("");
  auto suggestion = session_.Suggest();
  if (!suggestion.ok() || !suggestion->trial) GiveBackIfUnused();
  if (!suggestion.ok()) return suggestion;
  if (suggestion->trial) {
    running_[suggestion->trial->number] = {*suggestion->trial, prober, clock_.SinceBoot()};
  } else if (!suggestion->wait) {
    over_ = suggestion->why;
  }
  return suggestion;
}

absl::StatusOr<bool> ClientProbes::Beat(int64_t number, const std::string& prober) {
  absl::MutexLock lock(&mutex_);
  auto running = Find(number, prober);
  if (!running.ok()) return running.status();
  (*running)->heard = clock_.SinceBoot();
  return stopping_ || (*running)->interrupted;
}

absl::StatusOr<TrialRecord> ClientProbes::Complete(int64_t number, const std::string& prober,
                                                   const Measurement& measurement) {
  absl::MutexLock lock(&mutex_);
  auto running = Find(number, prober);
  if (!running.ok()) return running.status();
  TrialRecord trial = (*running)->trial;
  trial.measurement = measurement;
  trial.end_time = clock_.Now();
  trial.seconds = absl::ToDoubleSeconds(trial.end_time - trial.start_time);
  if (measurement.outcome == Outcome::kCancelled) {
    session_.Abandon(trial);
    trial.state = TrialState::kAbandoned;
  } else {
    trial.state = TrialState::kFinished;
    if (absl::Status status = session_.Complete(trial); !status.ok()) return status;
  }
  running_.erase(number);
  GiveBackIfUnused();
  return trial;
}

int64_t ClientProbes::TakeFromSilent() {
  absl::MutexLock lock(&mutex_);
  const auto taken = std::erase_if(running_, [&](const auto& entry) {
    if (clock_.SinceBoot() - entry.second.heard <= kHeartbeat) return false;
    session_.Abandon(entry.second.trial);
    return true;
  });
  GiveBackIfUnused();
  return static_cast<int64_t>(taken);
}

void ClientProbes::Interrupt() {
  absl::MutexLock lock(&mutex_);
  for (auto& [number, running] : running_) running.interrupted = true;
}

void ClientProbes::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

void ClientProbes::Drop() {
  absl::MutexLock lock(&mutex_);
  for (const auto& [number, running] : running_) session_.Abandon(running.trial);
  running_.clear();
  GiveBackIfUnused();
}

std::string ClientProbes::over() const {
  absl::MutexLock lock(&mutex_);
  return running_.empty() ? over_ : "";
}

int64_t ClientProbes::running() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(running_.size());
}

}  // namespace hbmtune::daemon

#include "daemon/studies/runner.h"

#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <poll.h>

#include <algorithm>

#include "daemon/base/failpoint.h"
#include "daemon/studies/client_probes.h"
#include "tuner/recommend/recommend.h"

namespace hbmtune::daemon {
namespace {

constexpr absl::Duration kRetryEvery = absl::Seconds(1);

void SleepUnlessStopped(const Cancellation& cancellation, absl::Duration time) {
  pollfd stop{cancellation.fd(), POLLIN, 0};
  poll(&stop, 1, static_cast<int>(absl::ToInt64Milliseconds(time)));
}

// A probe that refuses a study's first config, which the space allows, refuses all of them.
bool RefusedAtFirst(const TrialRecord& trial, const StudyRecord& study) {
  return trial.measurement && trial.measurement->outcome == Outcome::kInvalid &&
         study.progress.finished_trials == 1;
}

}  // namespace

void StopRequest::Set(StopReason reason, const std::string& message) {
  if (reason == StopReason::kDrain) leaving_.Cancel();
  absl::MutexLock lock(&mutex_);
  if (reason_ != StopReason::kNone) return;
  message_ = message;
  reason_ = reason;
  cancellation_.Cancel();
  if (trial_ != nullptr) trial_->Cancel();
}

void StopRequest::InterruptTrial() {
  absl::MutexLock lock(&mutex_);
  if (trial_ != nullptr) trial_->Cancel();
}

std::string StopRequest::message() const {
  absl::MutexLock lock(&mutex_);
  return message_;
}

std::shared_ptr<const Cancellation> StopRequest::BeginTrial() {
  absl::MutexLock lock(&mutex_);
  trial_ = std::make_shared<Cancellation>();
  if (reason_ != StopReason::kNone) trial_->Cancel();
  return trial_;
}

StudyRunner::StudyRunner(StudySession& session, StopRequest& stop, const Parts& parts)
    : session_(session), stop_(stop), parts_(parts) {}

void StudyRunner::Run() {
  absl::Status status = Persist(stop_.cancellation(), [this] {
    return session_.SetState(StudyState::kRunning, "");
  });
  if (status.ok()) {
    parts_.log.Info("study runs", {{"study", session_.id()},
                             {"device", session_.plan().device.name}});
    if (session_.client_probes() != nullptr) {
      ServeProbers();
    } else {
      while (!stopped() && RunNext()) {
      }
    }
  }
  const bool cancelled = stop_.reason() == StopReason::kCancel && !session_.Snapshot().ended();
  if (cancelled && CollectCutShort()) {
    End(StudyState::kCancelled, stop_.message());
  }
  parts_.node.give_back(session_.plan().device.name);
}

void StudyRunner::SetMessage(const std::string& message) {
  session_.SetMessage(message);
  parts_.waits_otherwise();
}

absl::Status StudyRunner::Persist(const Cancellation& give_up,
                                  const std::function<absl::Status()>& attempt) {
  for (std::string told;;) {
    absl::Status status = attempt();
    const bool wait = absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status);
    if (!wait) {
      // Unless a state with a message of its own was stored.
      if (!told.empty() && status.ok() && session_.Snapshot().message == told) SetMessage("");
      return status;
    }
    if (give_up.cancelled()) return status;
    const std::string why = absl::StrCat("waits: ", std::string(status.message()));
    if (told.empty()) {
      parts_.log.Warning("study waits", {{"study", session_.id()}, {"error", status}});
    }
    if (why != told) SetMessage(why);
    told = why;
    if (stop_.reason() == StopReason::kCancel) parts_.held_up(status);
    SleepUnlessStopped(give_up, kRetryEvery);
  }
}

void StudyRunner::ServeProbers() {
  constexpr absl::Duration kLook = absl::Milliseconds(200);
  ClientProbes& probes = *session_.client_probes();
  std::string told;  // what it waits for, by the word of the probers' calls
  while (!stopped() && probes.over().empty()) {
    if (std::string now = session_.Snapshot().message; now != told) {
      told = std::move(now);
      parts_.waits_otherwise();
    }
    if (int64_t taken = probes.TakeFromSilent(); taken > 0) {
      parts_.log.Warning("a prober fell silent", {{"study", session_.id()}, {"trials", taken}});
    }
    SleepUnlessStopped(stop_.cancellation(), kLook);
  }
  if (!stopped()) return End(StudyState::kSucceeded, EndMessage(probes.over()));
  probes.Stop();
  const absl::Time patient_until = parts_.clock.Now() + absl::Seconds(2);
  while (probes.running() > 0 && parts_.clock.Now() < patient_until) absl::SleepFor(kLook / 4);
  probes.Drop();
}

bool StudyRunner::RunNext() {
  StudySession::Suggestion suggestion;
  absl::Status status = Persist(stop_.cancellation(), [&] {
    auto next = session_.Suggest(&stop_.cancellation());
    if (!next.ok()) return next.status();
    suggestion = *std::move(next);
    return absl::OkStatus();
  });
  if (!status.ok()) {
    if (!stopped()) End(StudyState::kFailed, std::string(status.message()));
    return false;
  }
  if (suggestion.trial) return RunTrial(std::move(suggestion));
  if (suggestion.wait) return true;
  if (stopped()) return false;
  End(StudyState::kSucceeded, EndMessage(suggestion.why));
  return false;
}

bool StudyRunner::RunTrial(StudySession::Suggestion suggestion) {
  TrialRecord& trial = *suggestion.trial;
  absl::Status status = Persist(stop_.cancellation(), [&] {
    return suggestion.give_up ? Collect(trial) : Execute(trial);
  });
  if (!status.ok()) {
    if (!stopped()) {
      Abandon(trial);
      End(StudyState::kFailed, std::string(status.message()));
    } else if (trial.attempts > 1) {
      unsettled_.push_back(trial);
    }
    return false;
  }
  if (interrupted_ && trial.measurement && trial.measurement->outcome == Outcome::kCancelled) {
    Abandon(trial);
    return !stopped();
  }
  if (!Finish(trial)) return false;
  if (!RefusesGpu(trial)) {
    if (!RefusedAtFirst(trial, session_.Snapshot())) return true;
    End(StudyState::kFailed, trial.measurement->message);
    return false;
  }
  End(StudyState::kFailed,
      absl::StrCat(trial.measurement->message, "; model:", session_.plan().device.profile.name,
                   " is what can be told of it"));
  return false;
}

bool StudyRunner::Finish(TrialRecord& trial) {
  Failpoint("probe-ended");
  trial.state = TrialState::kFinished;
  trial.end_time = parts_.clock.Now();
  trial.seconds = absl::ToDoubleSeconds(trial.end_time - trial.start_time);
  absl::Status status = Persist(stop_.leaving(), [&] { return session_.Complete(trial); });
  if (!status.ok()) {
    parts_.log.Error("a result is not stored: the next start looks for its probe's copy",
                     {{"trial", TrialName(trial.study_id, trial.number)}, {"error", status}});
    return false;
  }
  Failpoint("trial-committed");
  Forget(trial);
  parts_.count(trial, session_.plan().device.kind);
  return true;
}

void StudyRunner::Abandon(const TrialRecord& trial) {
  session_.Abandon(trial);
  Forget(trial);
}

void StudyRunner::Forget(const TrialRecord& trial) {
  if (!session_.plan().modelled()) parts_.prober.Forget(TaskFor(trial));
}

bool StudyRunner::CollectCutShort() {
  if (session_.client_probes() != nullptr) return true;  // their results come from clients alone
  for (TrialRecord& trial : session_.TakeCutShort()) unsettled_.push_back(std::move(trial));
  for (TrialRecord& trial : unsettled_) {
    // Not until its probe is gone: one that had almost finished may yet leave a result. In a unit
    // it has ten seconds to end by itself; who holds the device for longer is another daemon's.
    const absl::Duration patient_until = parts_.clock.SinceBoot() + absl::Seconds(15);
    auto left = parts_.prober.Collect(TaskFor(trial), stop_.leaving());
    while (absl::IsFailedPrecondition(left.status()) && !stop_.draining() &&
           parts_.clock.SinceBoot() < patient_until) {
      left = parts_.prober.Collect(TaskFor(trial), stop_.leaving());
    }
    if (stop_.draining()) return false;
    if (left.ok() && *left) {
      trial.measurement = **left;
      Finish(trial);
    } else {
      Forget(trial);  // where probes run in a unit, the file that was made for it is empty
    }
  }
  return true;
}

bool StudyRunner::RefusesGpu(const TrialRecord& trial) const {
  return session_.plan().device.kind == DeviceKind::kGpu && trial.measurement &&
         trial.measurement->outcome == Outcome::kInvalid;
}

absl::Status StudyRunner::Execute(TrialRecord& trial) {
  if (!session_.plan().modelled()) return Probe(trial);
  auto estimate = session_.EstimateOf(trial.config);
  if (!estimate.ok()) return absl::InternalError(std::string(estimate.status().message()));
  trial.estimate = *estimate;
  return absl::OkStatus();
}

// The last attempt's probe may have finished although its daemon did not live to see it.
absl::Status StudyRunner::Collect(TrialRecord& trial) {
  auto left = parts_.prober.Collect(TaskFor(trial), stop_.cancellation());
  if (!left.ok()) return left.status();
  trial.measurement = *left ? **left : StudySession::GivenUp(trial);
  return absl::OkStatus();
}

ProbeObserver StudyRunner::Observe(const TrialRecord& trial, std::optional<int64_t>& pid) {
  ProbeObserver observer;
  const DeviceInfo& device = session_.plan().device;
  if (device.kind == DeviceKind::kGpu) {
    observer.locked = [this, &device] { return parts_.gpus.Check(device.name); };
  }
  observer.started = [this, &trial, &pid](int64_t started) {
    pid = started;
    if (started == 0) return;
    parts_.log.Info("probe starts", {{"trial", TrialName(trial.study_id, trial.number)},
                                     {"pid", started},
                                     {"attempt", trial.attempts}});
    // For people who look for an orphan; the device's lock is what keeps it apart.
    parts_.store.SetProber(trial, started, parts_.clock.BootId()).IgnoreError();
  };
  observer.step = [this, &trial](const ProbeStep& step) {
    session_.Progress({trial.study_id, trial.number, step.index, step.seconds, step.loss,
                       step.allocated_bytes, step.reserved_bytes});
  };
  return observer;
}

absl::Status StudyRunner::Probe(TrialRecord& trial) {
  const std::shared_ptr<const Cancellation> cancellation = stop_.BeginTrial();
  const DeviceInfo& device = session_.plan().device;
  // Until its memory is back the device is nobody else's.
  const ProbeTask task = TaskFor(trial);
  constexpr absl::Duration kStopping = absl::Minutes(1);
  absl::Status held = parts_.node.take(device.name, task.deadline + kStopping);
  if (!held.ok()) return held;
  const StudyRecord study = session_.Snapshot();
  auto permit = parts_.arbiter.BeginProbe(device.name, {study.spec.job_id, study.owner_uid});
  if (!permit.ok()) return permit.status();
  trial.start_time = parts_.clock.Now();
  std::optional<int64_t> pid;  // of a probe that there was
  auto measurement = parts_.prober.Run(task, *cancellation, Observe(trial, pid));
  interrupted_ = cancellation->cancelled();
  if (pid && device.kind == DeviceKind::kGpu) parts_.gpus.AwaitBaseline(device.name, *pid);
  if (!measurement.ok()) return measurement.status();
  parts_.log.Info("probe ends", {{"trial", TrialName(trial.study_id, trial.number)},
                           {"outcome", Name(measurement->outcome)},
                           {"message", measurement->message}});
  trial.measurement = *std::move(measurement);
  return absl::OkStatus();
}

ProbeTask StudyRunner::TaskFor(const TrialRecord& trial) const {
  const StudyRecord study = session_.Snapshot();
  ProbeTask task;
  task.trial = TrialName(trial.study_id, trial.number);
  task.workload = study.spec.workload;
  task.config = trial.config;
  task.device = session_.plan().device.name;
  task.gpu_unique_id = session_.plan().device.unique_id;
  task.memory_bytes = session_.plan().ceiling.capacity_bytes;
  task.seed = study.spec.seed;
  // A trial times steps for about a fortieth of the budget: tens of trials fit into it.
  const double budget = study.spec.budget_seconds;
  task.step_budget_seconds = std::clamp(budget / 40, 0.2, 10.0);
  // The last trial may overrun the budget by a quarter rather than be cut off for nothing.
  const double left = budget - study.progress.elapsed_seconds;
  task.deadline = absl::Seconds(std::clamp(left, std::max(10.0, budget / 4), 3600.0));
  return task;
}

std::string StudyRunner::EndMessage(const std::string& why) const {
  const StudyRecord study = session_.Snapshot();
  if (study.progress.fitting_trials > 0) return why;
  // Without an end to the search nothing can be said of what fits, and there is no time to.
  const double budget = study.spec.budget_seconds;
  if (budget > 0 && study.progress.elapsed_seconds >= budget) return why;
  const StudyPlan& plan = session_.plan();
  // What would help is looked for when it is asked for.
  auto shortfall = tuner::FindShortfall(
      plan.space,
      [this, &plan](const Workload& workload,
                    const TrainConfig& config) -> absl::StatusOr<Estimate> {
        if (stopped()) return absl::CancelledError("the study was told to stop");
        return Predict(workload, config, plan.device.profile, plan.ceiling);
      });
  return shortfall.ok() ? shortfall->message : why;
}

void StudyRunner::End(StudyState state, const std::string& message) {
  // Also of a cancelled study: left RUNNING, it would go on after the next start.
  absl::Status status =
      Persist(stop_.leaving(), [&] { return session_.SetState(state, message); });
  if (!status.ok()) {
    return parts_.log.Error("the end of a study is not stored",
                            {{"study", session_.id()}, {"error", status}});
  }
  parts_.log.Info("study ends", {{"study", session_.id()},
                           {"state", Name(state)},
                           {"message", message},
                           {"trials", session_.Snapshot().progress.finished_trials}});
}

}  // namespace hbmtune::daemon

#include "daemon/studies/session.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <limits>

#include "daemon/base/failpoint.h"
#include "daemon/studies/client_probes.h"
#include "kernels/core/hash.h"
#include "tuner/recommend/describe.h"

namespace hbmtune::daemon {
namespace {

// A trial that was cut short this often is taken for one that brings the node down.
constexpr int64_t kMostAttempts = 3;

// Answers are asked for again and again by the designer and for each trial: computed once.
tuner::Estimator Remembering(tuner::Estimator estimator) {
  struct Memory {
    absl::Mutex mutex;
    std::map<std::string, Estimate> answers ABSL_GUARDED_BY(mutex);
  };
  auto memory = std::make_shared<Memory>();
  return [memory, estimator = std::move(estimator)](
             const TrainConfig& config) -> absl::StatusOr<Estimate> {
    const std::string key = CanonicalText(config);
    {
      absl::MutexLock lock(&memory->mutex);
      if (auto found = memory->answers.find(key); found != memory->answers.end()) {
        return found->second;
      }
    }
    auto answer = estimator(config);
    if (!answer.ok()) return answer;
    absl::MutexLock lock(&memory->mutex);
    memory->answers[key] = *answer;
    return answer;
  };
}

}  // namespace

StudySession::StudySession(const World& world, StudyPlan plan, StudyRecord record)
    : world_(world),
      plan_(std::move(plan)),
      id_(record.id),
      spec_(record.spec),
      estimator_(Remembering(plan_.MakeEstimator())),
      record_(std::move(record)) {}

StudySession::~StudySession() = default;

absl::StatusOr<std::unique_ptr<StudySession>> StudySession::Open(const World& world,
                                                                 const Catalogue& catalogue,
                                                                 StudyRecord record) {
  auto plan = MakePlan(record.spec, catalogue);
  if (!plan.ok()) return plan.status();
  std::unique_ptr<StudySession> session(
      new StudySession(world, *std::move(plan), std::move(record)));
  if (absl::Status status = session->Load(); !status.ok()) return status;
  if (session->spec_.client_probes) {
    session->client_probes_ = std::make_unique<ClientProbes>(*session, world.clock, world.arbiter);
  }
  return session;
}

absl::Status StudySession::Load() {
  absl::MutexLock lock(&work_);
  auto trials = world_.store.ListTrials(id_, 0, std::numeric_limits<int64_t>::max());
  if (!trials.ok()) return trials.status();
  history_ = HistoryOf(*trials);
  search_seconds_ = Snapshot().progress.elapsed_seconds;
  for (const tuner::Trial& trial : history_) search_seconds_ -= trial.seconds;
  for (const TrialRecord& trial : *trials) {
    last_number_ = trial.number;
    if (trial.state == TrialState::kRunning) cut_short_.push_back(trial);
  }
  tuner::DesignerOptions options;
  options.seed = static_cast<uint64_t>(spec_.seed);
  options.budget_seconds = spec_.budget_seconds;
  options.budget_trials = spec_.max_trials;
  options.modelled = plan_.modelled();
  // Both are asked by the designer alone, which runs under work_.
  options.search_seconds = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const absl::Duration now = std::max(world_.clock.Now() - search_start_, absl::ZeroDuration());
    return search_seconds_ + absl::ToDoubleSeconds(now);
  };
  options.cancelled = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return search_cancellation_ != nullptr && search_cancellation_->cancelled();
  };
  auto designer = tuner::MakeDesigner(spec_.designer, plan_.space, estimator_, options);
  if (!designer.ok()) return designer.status();
  designer_ = *std::move(designer);
  return absl::OkStatus();
}

absl::StatusOr<StudySession::Suggestion> StudySession::Suggest(const Cancellation* cancellation) {
  absl::MutexLock lock(&work_);
  if (!cut_short_.empty()) return Retry();
  auto suggestion = Search(cancellation);
  if (!suggestion.ok() || !suggestion->trial) return suggestion;
  return HandOut(*std::move(suggestion->trial));
}

absl::StatusOr<StudySession::Suggestion> StudySession::Search(const Cancellation* cancellation) {
  search_start_ = world_.clock.Now();
  search_cancellation_ = cancellation;
  absl::Cleanup count = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const double seconds = absl::ToDoubleSeconds(world_.clock.Now() - search_start_);
    search_start_ = absl::InfiniteFuture();
    search_cancellation_ = nullptr;
    search_seconds_ += seconds;
    absl::MutexLock lock(&mutex_);
    record_.progress.elapsed_seconds += seconds;
  };
  tuner::Decision decision = designer_->Next(history_);
  if (tuner::Designer::IsWait(decision)) return Suggestion{std::nullopt, true, decision.why};
  if (!decision.config) return Suggestion{std::nullopt, false, decision.why};
  TrialRecord trial;
  trial.study_id = id_;
  trial.number = last_number_ + 1;
  trial.config = *decision.config;
  trial.why = decision.why;
  auto estimate = estimator_(trial.config);
  if (!estimate.ok()) return estimate.status();
  trial.estimate = *estimate;
  return Suggestion{std::move(trial), false, ""};
}

absl::StatusOr<StudySession::Suggestion> StudySession::Retry() {
  TrialRecord trial = cut_short_.front();
  const bool give_up = trial.attempts >= kMostAttempts;
  if (!give_up || !spec_.client_probes) {
    if (!give_up) ++trial.attempts;
    auto suggestion = HandOut(std::move(trial));
    if (!suggestion.ok()) return suggestion;
    suggestion->give_up = give_up;
    cut_short_.erase(cut_short_.begin());
    return suggestion;
  }
  trial.state = TrialState::kFinished;
  trial.end_time = world_.clock.Now();
  trial.measurement = GivenUp(trial);
  if (absl::Status status = Store(trial); !status.ok()) return status;
  history_.push_back({trial.config, trial.estimate, trial.measurement, true, trial.seconds});
  cut_short_.erase(cut_short_.begin());
  return Suggestion{std::nullopt, true, trial.measurement->message};
}

std::vector<TrialRecord> StudySession::TakeCutShort() {
  absl::MutexLock lock(&work_);
  for (TrialRecord& trial : cut_short_) {
    trial.start_time = world_.clock.Now();
    running_[trial.number] = history_.size();
    history_.push_back({trial.config, trial.estimate, std::nullopt, false, 0});
  }
  return std::exchange(cut_short_, {});
}

Measurement StudySession::GivenUp(const TrialRecord& trial) {
  Measurement measurement;
  measurement.outcome = Outcome::kCrashed;
  measurement.message = absl::StrCat("the daemon or the node ended during each of ",
                                     trial.attempts, " attempts");
  return measurement;
}

absl::StatusOr<StudySession::Suggestion> StudySession::HandOut(TrialRecord trial) {
  trial.start_time = world_.clock.Now();
  // An estimate needs no process, so there is nothing that a crash could leave behind: one write,
  // when it is finished.
  if (!plan_.modelled()) {
    if (absl::Status status = world_.store.StartTrial(trial); !status.ok()) return status;
    Failpoint("trial-stored");
  }
  last_number_ = std::max(last_number_, trial.number);
  running_[trial.number] = history_.size();
  history_.push_back({trial.config, trial.estimate, std::nullopt, false, 0});
  {
    absl::MutexLock lock(&mutex_);
    record_.trying =
        absl::StrJoin(tuner::Describe(spec_.workload.framework, trial.config), ", ");
    record_.trying_since = trial.start_time;
  }
  world_.hub.Publish(id_, TrialStarted{trial, spec_.workload.framework});
  return Suggestion{trial, false, trial.why};
}

void StudySession::Count(const TrialRecord& trial, StudyProgress& progress) const {
  const tuner::Trial tried{trial.config, trial.estimate, trial.measurement, true, trial.seconds};
  ++progress.finished_trials;
  progress.elapsed_seconds += trial.seconds;
  if (tuner::RanOutOfMemory(tried)) ++progress.out_of_memory_trials;
  if (!tuner::Fitted(tried)) return;
  ++progress.fitting_trials;
  const double speed = tuner::TokensPerSecond(tried);
  if (speed > progress.best_tokens_per_second) {
    progress.best_tokens_per_second = speed;
    progress.best_trial = trial.number;
  }
}

absl::Status StudySession::Store(const TrialRecord& trial) {
  StudyRecord counted = Snapshot();
  Count(trial, counted.progress);
  counted.trying.clear();
  if (absl::Status status = world_.store.FinishTrial(trial, counted); !status.ok()) return status;
  {
    absl::MutexLock lock(&mutex_);
    record_ = std::move(counted);
  }
  world_.store.NoteChange(spec_);  // once more: Snapshot has changed too
  return absl::OkStatus();
}

absl::Status StudySession::Complete(const TrialRecord& trial) {
  {
    absl::MutexLock lock(&work_);
    auto running = running_.find(trial.number);
    if (running == running_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat(TrialName(id_, trial.number), " is not running"));
    }
    if (absl::Status status = Store(trial); !status.ok()) return status;
    history_[running->second] = {trial.config, trial.estimate, trial.measurement, true,
                                 trial.seconds};
    running_.erase(running);
  }
  world_.hub.Publish(id_, TrialFinished{trial, spec_.workload.framework});
  world_.hub.Publish(id_, Snapshot());
  return absl::OkStatus();
}

void StudySession::Abandon(const TrialRecord& trial) {
  absl::MutexLock lock(&work_);
  auto running = running_.find(trial.number);
  if (running == running_.end()) return;
  // Trials that run are at the end of the history, in the order of their numbers.
  const size_t place = running->second;
  history_.erase(history_.begin() + static_cast<std::ptrdiff_t>(place));
  running_.erase(running);
  for (auto& [number, other] : running_) {
    if (other > place) --other;
  }
  world_.store.AbandonTrial(trial).IgnoreError();  // a row that stays RUNNING is run again
  absl::MutexLock record_lock(&mutex_);
  record_.trying.clear();
}

StudyRecord StudySession::Snapshot() const {
  absl::MutexLock lock(&mutex_);
  return record_;
}

absl::Status StudySession::SetState(StudyState state, const std::string& message) {
  StudyRecord next = Snapshot();
  if (next.space_legal == 0 && state == StudyState::kRunning) {
    const tuner::SpaceSummary summary = tuner::ExplainSpace(plan_.space);
    next.space_legal = summary.legal;
    next.space_settings = summary.settings;
  }
  next.state = state;
  next.message = message;
  if (next.start_time == absl::InfinitePast()) next.start_time = world_.clock.Now();
  if (next.ended()) next.end_time = world_.clock.Now();
  if (absl::Status status = world_.store.UpdateStudy(next); !status.ok()) return status;
  {
    absl::MutexLock lock(&mutex_);
    record_ = next;
  }
  world_.store.NoteChange(spec_);
  if (next.ended()) {
    world_.hub.End(next);
  } else {
    world_.hub.Publish(id_, next);
  }
  return absl::OkStatus();
}

void StudySession::SetMessage(const std::string& message) {
  StudyRecord snapshot;
  {
    absl::MutexLock lock(&mutex_);
    if (record_.message == message) return;
    record_.message = message;
    snapshot = record_;
  }
  world_.hub.Publish(id_, snapshot);
}

void StudySession::Progress(const TrialProgress& progress) { world_.hub.Publish(id_, progress); }

}  // namespace hbmtune::daemon

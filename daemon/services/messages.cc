#include "daemon/services/messages.h"

#include <algorithm>

#include "proto/convert.h"
#include "tuner/recommend/describe.h"
#include "tuner/search/history.h"

namespace hbmtune::daemon {
namespace {

// Enums of the daemon, by name as everywhere; their messages' enums have the same order.
template <class M, NamedEnum E>
M EnumMessage(E value) {
  return static_cast<M>(static_cast<int>(value) + 1);
}

void SetTime(absl::Time time, google::protobuf::Timestamp* message) {
  const int64_t micros = absl::ToUnixMicros(time);
  message->set_seconds(micros / 1'000'000);
  message->set_nanos(static_cast<int32_t>(micros % 1'000'000) * 1000);
}

bool Came(absl::Time time) { return time != absl::InfinitePast(); }

void SetProgress(const StudyRecord& study, absl::Time now, v1::Progress& message) {
  const StudyProgress& progress = study.progress;
  message.set_finished_trials(progress.finished_trials);
  message.set_fitting_trials(progress.fitting_trials);
  message.set_out_of_memory_trials(progress.out_of_memory_trials);
  message.set_expected_trials(study.spec.max_trials);
  message.set_best_tokens_per_second(progress.best_tokens_per_second);
  if (progress.best_trial > 0) message.set_best_trial(TrialName(study.id, progress.best_trial));
  message.set_trying(study.trying);
  double elapsed = progress.elapsed_seconds;
  if (!study.trying.empty()) elapsed += absl::ToDoubleSeconds(now - study.trying_since);
  message.set_elapsed_seconds(elapsed);
  message.set_remaining_seconds(std::max(0.0, study.spec.budget_seconds - elapsed));
}

}  // namespace

void ToMessage(const StudyRecord& study, absl::Time now, v1::Study& message) {
  message.set_name(StudyName(study.id));
  message.set_state(EnumMessage<v1::StudyState>(study.state));
  ToProto(study.spec.workload, *message.mutable_workload());
  message.set_device(study.spec.device);
  ToProto(study.spec.ceiling, *message.mutable_ceiling());
  message.set_budget_seconds(study.spec.budget_seconds);
  message.set_max_trials(study.spec.max_trials);
  message.set_designer(study.spec.designer);
  message.set_seed(study.spec.seed);
  for (const auto& [path, value] : study.spec.pins) (*message.mutable_pins())[path] = value;
  message.set_detached(study.spec.detached);
  message.set_client_probes(study.spec.client_probes);
  message.set_job_id(study.spec.job_id);
  SetTime(study.create_time, message.mutable_create_time());
  if (Came(study.start_time)) SetTime(study.start_time, message.mutable_start_time());
  if (Came(study.end_time)) SetTime(study.end_time, message.mutable_end_time());
  message.set_message(study.message);
  SetProgress(study, now, *message.mutable_progress());
  message.mutable_space()->set_legal(study.space_legal);
  message.mutable_space()->set_settings(study.space_settings);
}

void ToMessage(const TrialRecord& trial, Framework framework, v1::Trial& message) {
  message.set_name(TrialName(trial.study_id, trial.number));
  message.set_state(EnumMessage<v1::TrialState>(trial.state));
  ToProto(trial.config, *message.mutable_train_config());
  if (trial.estimate) ToProto(*trial.estimate, *message.mutable_estimate());
  if (trial.measurement) ToProto(*trial.measurement, *message.mutable_measurement());
  message.set_evidence(EnumMessage<v1::Evidence>(
      tuner::EvidenceOf(framework, trial.estimate, trial.measurement)));
  if (Came(trial.start_time)) SetTime(trial.start_time, message.mutable_start_time());
  if (Came(trial.end_time)) SetTime(trial.end_time, message.mutable_end_time());
  message.set_attempts(trial.attempts);
  message.set_why(trial.why);
}

void ToMessage(const StudyEvent& event, absl::Time now, v1::StudyEvent& message) {
  if (const auto* study = std::get_if<StudyRecord>(&event)) {
    ToMessage(*study, now, *message.mutable_study());
  } else if (const auto* started = std::get_if<TrialStarted>(&event)) {
    ToMessage(started->trial, started->framework, *message.mutable_trial_started());
  } else if (const auto* finished = std::get_if<TrialFinished>(&event)) {
    ToMessage(finished->trial, finished->framework, *message.mutable_trial_finished());
  } else {
    const auto& progress = std::get<TrialProgress>(event);
    v1::TrialProgress& step = *message.mutable_trial_progress();
    step.set_trial(TrialName(progress.study_id, progress.number));
    step.set_step(progress.step);
    step.set_step_seconds(progress.step_seconds);
    step.set_loss(progress.loss);
    step.set_allocated_bytes(progress.allocated_bytes);
    step.set_reserved_bytes(progress.reserved_bytes);
  }
}

void ToMessage(const Advice& advice, v1::Recommendation& message) {
  const StudySpec& spec = advice.study.spec;
  if (advice.recommendation) {
    ToProto(*advice.recommendation, message);
    auto describe = [&](const tuner::Candidate& candidate, v1::Candidate& described) {
      for (auto& line : tuner::Describe(spec.workload.framework, candidate.train_config)) {
        described.add_description(std::move(line));
      }
    };
    describe(advice.recommendation->best, *message.mutable_best());
    for (int i = 0; i < message.runners_up_size(); ++i) {
      describe(advice.recommendation->runners_up[static_cast<size_t>(i)],
               *message.mutable_runners_up(i));
    }
  } else {
    message.set_trials(advice.study.progress.finished_trials);
    message.set_out_of_memory_trials(advice.study.progress.out_of_memory_trials);
  }
  if (advice.shortfall) ToProto(*advice.shortfall, *message.mutable_shortfall());
  message.set_study(StudyName(advice.study.id));
  ToProto(spec.workload, *message.mutable_workload());
  message.set_device(spec.device);
  ToProto(advice.ceiling, *message.mutable_ceiling());
}

v1::DeviceState StateOf(const DeviceArbiter::DeviceView& view, bool running) {
  if (!view.dirty.empty()) return v1::DEVICE_STATE_DIRTY;
  if (view.probing) return v1::DEVICE_STATE_PROBING;  // also while it drains
  if (view.quiesced) return v1::DEVICE_STATE_QUIESCED;
  if (!view.leased_by.empty()) return v1::DEVICE_STATE_LEASED;
  return running ? v1::DEVICE_STATE_PROBING : v1::DEVICE_STATE_IDLE;
}

void ToMessage(const DeviceInfo& device, const StudyManager::Load& load,
               const DeviceArbiter::DeviceView& view, v1::Device& message) {
  message.set_name(device.name);
  for (const std::string& alias : device.aliases) message.add_aliases(alias);
  message.set_kind(EnumMessage<v1::DeviceKind>(device.kind));
  v1::DeviceState state = StateOf(view, load.running_study > 0);
  if (state == v1::DEVICE_STATE_IDLE && !device.processes.empty()) state = v1::DEVICE_STATE_BUSY;
  message.set_state(state);
  message.set_product(device.product);
  message.set_architecture(device.profile.architecture);
  message.set_memory_bytes(device.memory_bytes);
  if (device.used_bytes) message.set_used_bytes(*device.used_bytes);
  for (const DeviceProcess& process : device.processes) {
    v1::DeviceProcess& told = *message.add_processes();
    told.set_pid(process.pid);
    told.set_memory_bytes(process.memory_bytes);
    told.set_program(process.program);
  }
  if (device.kind != DeviceKind::kGpu) {
    const device::FigureCounts counts = device::CountFigures(device.profile);
    message.set_measured_figures(counts.measured);
    message.set_datasheet_figures(counts.datasheet);
  }
  if (load.running_study > 0) message.set_running_study(StudyName(load.running_study));
  message.set_queued_studies(load.waiting);
  message.set_leased_by(view.leased_by);
  message.set_dirty(view.dirty);
}

}  // namespace hbmtune::daemon

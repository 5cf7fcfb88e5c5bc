#include "client/output_json.h"

#include <google/protobuf/util/time_util.h>

#include <cctype>
#include <cstdio>
#include <map>

#include "client/output.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

// The one field, for messages of which the rest is read by hand.
struct EvidenceOutput {
  Evidence evidence = Evidence::kPredicted;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"evidence", "what the figures rest on"}, self.evidence);
  }
};

std::string Small(std::string name, std::string_view prefix) {
  name.erase(0, prefix.size());
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace

CandidateOutput ToOutput(const v1::Candidate& candidate) {
  return FromProto<CandidateOutput>(candidate);
}

RecommendationOutput ToOutput(const v1::Recommendation& recommendation) {
  RecommendationOutput output;
  output.study = recommendation.study();
  if (recommendation.has_best()) {
    CandidateOutput best = ToOutput(recommendation.best());
    output.train_config = best.train_config;
    output.estimate = best.estimate;
    output.measurement = best.measurement;
    output.evidence = best.evidence;
  }
  output.trials = recommendation.trials();
  output.out_of_memory_trials = recommendation.out_of_memory_trials();
  output.limited_by = recommendation.limited_by();
  output.why = recommendation.why();
  for (const auto& candidate : recommendation.runners_up()) {
    output.runners_up.push_back(ToOutput(candidate));
  }
  if (recommendation.has_shortfall()) {
    output.shortfall = FromProto<ShortfallOutput>(recommendation.shortfall());
  }
  output.workload = FromProto<Workload>(recommendation.workload());
  output.device = recommendation.device();
  output.ceiling = FromProto<CeilingOutput>(recommendation.ceiling());
  return output;
}

StudyOutput ToOutput(const v1::Study& study) {
  StudyOutput output;
  output.study = study.name();
  output.state = StateName(study.state());
  output.message = study.message();
  output.device = study.device();
  output.workload = FromProto<Workload>(study.workload());
  output.ceiling = FromProto<CeilingOutput>(study.ceiling());
  output.budget_seconds = study.budget_seconds();
  output.max_trials = study.max_trials();
  output.designer = study.designer();
  output.seed = study.seed();
  const std::map<std::string, std::string> pins(study.pins().begin(), study.pins().end());
  for (const auto& [field, value] : pins) output.pins.push_back(field + "=" + value);
  output.detached = study.detached();
  output.create_time = google::protobuf::util::TimeUtil::ToString(study.create_time());
  output.space = FromProto<SpaceOutput>(study.space());
  output.progress = FromProto<ProgressOutput>(study.progress());
  return output;
}

TrialOutput ToOutput(const v1::Trial& trial) {
  TrialOutput output;
  output.trial = trial.name();
  output.state = StateName(trial.state());
  output.train_config = FromProto<TrainConfig>(trial.train_config());
  if (trial.has_estimate()) output.estimate = FromProto<Estimate>(trial.estimate());
  if (trial.has_measurement()) output.measurement = FromProto<Measurement>(trial.measurement());
  output.evidence = FromProto<EvidenceOutput>(trial).evidence;
  output.attempts = trial.attempts();
  output.why = trial.why();
  return output;
}

DeviceOutput ToOutput(const v1::Device& device) {
  DeviceOutput output;
  output.device = device.name();
  output.kind = Small(v1::DeviceKind_Name(device.kind()), "DEVICE_KIND_");
  output.state = StateName(device.state());
  output.product = device.product();
  output.architecture = device.architecture();
  output.memory_bytes = device.memory_bytes();
  output.measured_figures = device.measured_figures();
  output.datasheet_figures = device.datasheet_figures();
  output.aliases = {device.aliases().begin(), device.aliases().end()};
  output.running_study = device.running_study();
  output.queued_studies = device.queued_studies();
  output.leased_by = device.leased_by();
  output.dirty = device.dirty();
  return output;
}

LeaseOutput ToOutput(const v1::Lease& lease) {
  return {lease.job_id(),
          {lease.devices().begin(), lease.devices().end()},
          Small(v1::LeaseState_Name(lease.state()), "LEASE_STATE_"),
          lease.durable()};
}

std::string StateName(v1::StudyState state) {
  return Small(v1::StudyState_Name(state), "STUDY_STATE_");
}

std::string StateName(v1::TrialState state) {
  return Small(v1::TrialState_Name(state), "TRIAL_STATE_");
}

std::string StateName(v1::DeviceState state) {
  return Small(v1::DeviceState_Name(state), "DEVICE_STATE_");
}

void PrintJson(const Json& json) { WriteOut(stdout, json.dump(2) + "\n"); }

}  // namespace hbmtune::client

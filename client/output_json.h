#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hbmtune/v1/devices.pb.h"
#include "hbmtune/v1/tuning.pb.h"
#include "kernels/core/effect.h"
#include "kernels/core/json.h"
#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

// What --output json prints. The structs are visited, so the schema comes from them too; names
// and units are those of the fields everywhere else.
namespace hbmtune::client {

// A train config with what is known of it; `estimate`, `measurement` are absent when there is none.
struct CandidateOutput {
  TrainConfig train_config;
  std::optional<Estimate> estimate;
  std::optional<Measurement> measurement;
  Evidence evidence = Evidence::kPredicted;
  double tokens_per_second = 0;
  double step_seconds = 0;
  int64_t peak_used_bytes = 0;
  std::string differs_in;
  std::vector<std::string> description;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"train_config", "the train config"}, self.train_config);
    v(Field{"estimate", "what the model says about it"}, self.estimate);
    v(Field{"measurement", "what its probe returned"}, self.measurement);
    v(Field{"evidence", "what the figures rest on"}, self.evidence);
    v(Field{"tokens_per_second", "of the measurement, else of the estimate"},
      self.tokens_per_second);
    v(Field{"step_seconds", "of the measurement, else of the estimate"}, self.step_seconds);
    v(Field{"peak_used_bytes", "of the measurement, else of the estimate"}, self.peak_used_bytes);
    v(Field{"differs_in", "in what it differs from the best, for people"}, self.differs_in);
    v(Field{"description", "the train config, for people, in lines"}, self.description);
  }
};

struct HintOutput {
  std::string change;
  int64_t saved_bytes = 0;
  double cost_ratio = 0;
  bool fits = false;
  int64_t peak_used_bytes = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"change", "the tunable and its new value"}, self.change);
    v(Field{"saved_bytes", "device memory that it saves"}, self.saved_bytes);
    v(Field{"cost_ratio", "step time that it adds, as a share"}, self.cost_ratio);
    v(Field{"fits", "the config would fit"}, self.fits);
    v(Field{"peak_used_bytes", "device memory that it would need"}, self.peak_used_bytes);
  }
};

struct ShortfallOutput {
  TrainConfig train_config;
  Estimate estimate;
  std::vector<HintOutput> hints;
  std::string message;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"train_config", "the config that needs the least memory"}, self.train_config);
    v(Field{"estimate", "what it needs"}, self.estimate);
    v(Field{"hints", "what would make it fit, smallest change first, or save most"}, self.hints);
    v(Field{"message", "the shortfall, in a sentence"}, self.message);
  }
};

struct CeilingOutput {
  int64_t capacity_bytes = 0;
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"capacity_bytes", "memory of the device"}, self.capacity_bytes);
    v(Field{"device_bytes", "device memory that may be used"}, self.device_bytes);
    v(Field{"host_bytes", "host memory that may be used, 0 for no limit"}, self.host_bytes);
  }
};

// What tune and recommend print. Without a train_config nothing fits, and `shortfall` says by how
// much and what would help.
struct RecommendationOutput {
  std::string study;
  std::optional<std::string> state;
  std::optional<TrainConfig> train_config;
  std::optional<Estimate> estimate;
  std::optional<Measurement> measurement;
  std::optional<Evidence> evidence;
  int64_t trials = 0;
  int64_t out_of_memory_trials = 0;
  std::string limited_by;
  std::string why;
  std::vector<CandidateOutput> runners_up;
  std::optional<ShortfallOutput> shortfall;
  Workload workload;
  std::string device;
  CeilingOutput ceiling;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"study", "name of the study"}, self.study);
    v(Field{"state", "how the study ended: succeeded, cancelled or failed"}, self.state);
    v(Field{"train_config", "the recommended config; absent when nothing fits"},
      self.train_config);
    v(Field{"estimate", "what the model says about it"}, self.estimate);
    v(Field{"measurement", "what its probe returned"}, self.measurement);
    v(Field{"evidence", "what the figures rest on"}, self.evidence);
    v(Field{"trials", "finished trials that the answer rests on"}, self.trials);
    v(Field{"out_of_memory_trials", "of these, how many ran out of memory"},
      self.out_of_memory_trials);
    v(Field{"limited_by", "what keeps the config from being faster or larger"}, self.limited_by);
    v(Field{"why", "the reason, in a sentence"}, self.why);
    v(Field{"runners_up", "the next best"}, self.runners_up);
    v(Field{"shortfall", "when nothing fits: why, and what would help"}, self.shortfall);
    v(Field{"workload", "what is trained"}, self.workload);
    v(Field{"device", "the device"}, self.device);
    v(Field{"ceiling", "the memory that may be used"}, self.ceiling);
  }
};

// What estimate prints: an Estimate's fields, and what was estimated; `effects` with --explain.
struct EstimateOutput {
  Estimate estimate;
  std::string device;
  Workload workload;
  TrainConfig train_config;
  std::optional<std::vector<Effect>> effects;
  int64_t host_ceiling_bytes = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    Estimate::Visit(self.estimate, v);
    v(Field{"device", "the device"}, self.device);
    v(Field{"workload", "what is trained"}, self.workload);
    v(Field{"train_config", "the train config, every field filled in"}, self.train_config);
    v(Field{"effects", "what each tunable would do, changed alone"}, self.effects);
    v(Field{"host_ceiling_bytes", "host memory that may be used, 0 for no limit"},
      self.host_ceiling_bytes);
  }
};

struct ProgressOutput {
  int64_t finished_trials = 0;
  int64_t fitting_trials = 0;
  int64_t out_of_memory_trials = 0;
  int64_t expected_trials = 0;
  double elapsed_seconds = 0;
  double remaining_seconds = 0;
  double best_tokens_per_second = 0;
  std::string best_trial;
  std::string trying;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"finished_trials", "trials that ended"}, self.finished_trials);
    v(Field{"fitting_trials", "of these, how many fitted"}, self.fitting_trials);
    v(Field{"out_of_memory_trials", "of these, how many ran out of memory"},
      self.out_of_memory_trials);
    v(Field{"expected_trials", "trials in the end, 0 when unknown"}, self.expected_trials);
    v(Field{"elapsed_seconds", "time spent"}, self.elapsed_seconds);
    v(Field{"remaining_seconds", "time left of the budget"}, self.remaining_seconds);
    v(Field{"best_tokens_per_second", "best so far, 0 for nothing yet"},
      self.best_tokens_per_second);
    v(Field{"best_trial", "its trial"}, self.best_trial);
    v(Field{"trying", "what is being tried, for people"}, self.trying);
  }
};

struct SpaceOutput {
  int64_t legal = 0;
  int64_t settings = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"legal", "legal train configs"}, self.legal);
    v(Field{"settings", "of these, choices that differ in more than micro-batch"}, self.settings);
  }
};

struct StudyOutput {
  std::string study;
  std::string state;
  std::string message;
  std::string device;
  Workload workload;
  CeilingOutput ceiling;
  double budget_seconds = 0;
  int64_t max_trials = 0;
  std::string designer;
  int64_t seed = 0;
  std::vector<std::string> pins;
  bool detached = false;
  std::string create_time;
  SpaceOutput space;
  ProgressOutput progress;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"study", "name of the study"}, self.study);
    v(Field{"state", "queued, running, succeeded, cancelled or failed"}, self.state);
    v(Field{"message", "why it ended, or what it waits for"}, self.message);
    v(Field{"device", "the device"}, self.device);
    v(Field{"workload", "what is trained"}, self.workload);
    v(Field{"ceiling", "memory that may be used, 0 for the device's own limit"}, self.ceiling);
    v(Field{"budget_seconds", "time for probing, 0 for no limit"}, self.budget_seconds);
    v(Field{"max_trials", "most trials, 0 for no limit"}, self.max_trials);
    v(Field{"designer", "how trials are chosen"}, self.designer);
    v(Field{"seed", "what decides random choices"}, self.seed);
    v(Field{"pins", "fixed tunables, as FIELD=VALUE"}, self.pins);
    v(Field{"detached", "it goes on without its client"}, self.detached);
    v(Field{"create_time", "when it was made, RFC 3339"}, self.create_time);
    v(Field{"space", "how large the search is"}, self.space);
    v(Field{"progress", "how far it is"}, self.progress);
  }
};

struct TrialOutput {
  std::string trial;
  std::string state;
  TrainConfig train_config;
  std::optional<Estimate> estimate;
  std::optional<Measurement> measurement;
  Evidence evidence = Evidence::kPredicted;
  int64_t attempts = 0;
  std::string why;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"trial", "name of the trial"}, self.trial);
    v(Field{"state", "running, finished or abandoned"}, self.state);
    v(Field{"train_config", "what was tried"}, self.train_config);
    v(Field{"estimate", "what the model said before it ran"}, self.estimate);
    v(Field{"measurement", "what its probe returned"}, self.measurement);
    v(Field{"evidence", "what the figures rest on"}, self.evidence);
    v(Field{"attempts", "how often it was started"}, self.attempts);
    v(Field{"why", "why this config was tried"}, self.why);
  }
};

// What show prints; `recommendation` is absent until a trial has finished.
struct ShowOutput {
  StudyOutput study;
  std::vector<TrialOutput> trials;
  std::optional<RecommendationOutput> recommendation;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"study", "the study"}, self.study);
    v(Field{"trials", "its trials, oldest first"}, self.trials);
    v(Field{"recommendation", "the best that is known"}, self.recommendation);
  }
};

struct DeviceOutput {
  std::string device;
  std::string kind;
  std::string state;
  std::string product;
  std::string architecture;
  int64_t memory_bytes = 0;
  int64_t measured_figures = 0;
  int64_t datasheet_figures = 0;
  std::vector<std::string> aliases;
  std::string running_study;
  int64_t queued_studies = 0;
  std::string leased_by;
  std::string dirty;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"device", "name of the device"}, self.device);
    v(Field{"kind", "host, gpu or model"}, self.kind);
    v(Field{"state", "idle, probing, leased, busy, dirty or quiesced"}, self.state);
    v(Field{"product", "what it is, for people"}, self.product);
    v(Field{"architecture", "instruction set"}, self.architecture);
    v(Field{"memory_bytes", "all of its memory"}, self.memory_bytes);
    v(Field{"measured_figures", "figures of its profile that were measured"},
      self.measured_figures);
    v(Field{"datasheet_figures", "figures of its profile from the datasheet"},
      self.datasheet_figures);
    v(Field{"aliases", "other names"}, self.aliases);
    v(Field{"running_study", "study that runs on it"}, self.running_study);
    v(Field{"queued_studies", "studies that wait for it"}, self.queued_studies);
    v(Field{"leased_by", "job that holds it"}, self.leased_by);
    v(Field{"dirty", "why it is dirty, if it is"}, self.dirty);
  }
};

// What lease and release print.
struct LeaseOutput {
  std::string job_id;
  std::vector<std::string> devices;
  std::string state;
  bool durable = true;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"job_id", "the job whose lease it is"}, self.job_id);
    v(Field{"devices", "what it holds"}, self.devices);
    v(Field{"state", "granted, or draining: a probe has not ended"}, self.state);
    v(Field{"durable", "false: the daemon could not write it down, a restart forgets it"},
      self.durable);
  }
};

CandidateOutput ToOutput(const v1::Candidate& candidate);
RecommendationOutput ToOutput(const v1::Recommendation& recommendation);
StudyOutput ToOutput(const v1::Study& study);
TrialOutput ToOutput(const v1::Trial& trial);
DeviceOutput ToOutput(const v1::Device& device);
LeaseOutput ToOutput(const v1::Lease& lease);

// "running", "out_of_memory": an enumerator without its type's prefix, in small letters.
std::string StateName(v1::StudyState state);
std::string StateName(v1::TrialState state);
std::string StateName(v1::DeviceState state);

// The JSON on stdout, indented, and a line feed.
void PrintJson(const Json& json);

}  // namespace hbmtune::client

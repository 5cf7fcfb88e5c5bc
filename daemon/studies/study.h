#pragma once

#include <absl/time/time.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/visit.h"
#include "kernels/core/workload.h"
#include "tuner/predict/predict.h"

// What the daemon knows of studies and trials: what is stored, and what messages are made from.
namespace hbmtune::daemon {

enum class StudyState : uint8_t { kQueued, kRunning, kSucceeded, kCancelled, kFailed };
enum class TrialState : uint8_t { kRunning, kFinished, kAbandoned };

}  // namespace hbmtune::daemon

template <>
struct hbmtune::EnumNames<hbmtune::daemon::StudyState> {
  static constexpr std::array<std::string_view, 5> kNames = {"QUEUED", "RUNNING", "SUCCEEDED",
                                                             "CANCELLED", "FAILED"};
};
template <>
struct hbmtune::EnumNames<hbmtune::daemon::TrialState> {
  static constexpr std::array<std::string_view, 3> kNames = {"RUNNING", "FINISHED", "ABANDONED"};
};

namespace hbmtune::daemon {

// Field path of TrainConfig to what it may be, as the caller wrote it (tuner::ParsePin).
using PinTexts = std::map<std::string, std::string>;

// What a caller asks for.
struct StudySpec {
  Workload workload;
  std::string device;
  Ceiling ceiling;
  double budget_seconds = 0;
  int64_t max_trials = 0;
  std::string designer = "bracket";
  int64_t seed = 0;
  bool detached = false;
  bool client_probes = false;
  std::string job_id;
  PinTexts pins;  // in a table of its own

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"workload", "what is trained"}, self.workload);
    v(Field{"device", "where it is tried"}, self.device);
    v(Field{"ceiling", "memory that may be used"}, self.ceiling);
    v(Field{"budget_seconds", "time for probing, 0 for no limit"}, self.budget_seconds);
    v(Field{"max_trials", "most trials, 0 for no limit"}, self.max_trials);
    v(Field{"designer", "how trials are chosen"}, self.designer);
    v(Field{"seed", "decides every random choice"}, self.seed);
    v(Field{"detached", "goes on without its client"}, self.detached);
    v(Field{"client_probes", "trials are run by clients"}, self.client_probes);
    v(Field{"job_id", "the job in whose lease probes run"}, self.job_id);
  }
};

struct StudyProgress {
  int64_t finished_trials = 0;
  int64_t fitting_trials = 0;
  int64_t out_of_memory_trials = 0;
  double elapsed_seconds = 0;
  double best_tokens_per_second = 0;
  int64_t best_trial = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"finished_trials", "trials that ended"}, self.finished_trials);
    v(Field{"fitting_trials", "trials that stayed under the ceiling"}, self.fitting_trials);
    v(Field{"out_of_memory_trials", "trials that ran out of memory"}, self.out_of_memory_trials);
    v(Field{"elapsed_seconds", "time spent in trials and in search"}, self.elapsed_seconds);
    v(Field{"best_tokens_per_second", "of the best trial so far"}, self.best_tokens_per_second);
    v(Field{"best_trial", "number of the best trial so far, 0 for none"}, self.best_trial);
  }
};

struct StudyRecord {
  int64_t id = 0;
  int64_t owner_uid = 0;
  std::string client_request_id;
  std::string request_hash;  // of the spec as it was asked for
  StudySpec spec;
  StudyState state = StudyState::kQueued;
  std::string message;
  std::string cancel_reason;  // set once a cancel was accepted, also while it still runs
  StudyProgress progress;
  int64_t space_legal = 0;
  int64_t space_settings = 0;
  absl::Time create_time = absl::InfinitePast();
  absl::Time start_time = absl::InfinitePast();  // until it first ran
  absl::Time end_time = absl::InfinitePast();    // until it ended
  // Of a running study, not stored: what is being tried, and since when.
  std::string trying;
  absl::Time trying_since = absl::InfinitePast();

  bool ended() const { return state >= StudyState::kSucceeded; }
};

struct TrialRecord {
  int64_t study_id = 0;
  int64_t number = 0;  // from 1 within the study
  TrialState state = TrialState::kRunning;
  int64_t attempts = 1;
  TrainConfig config;
  std::string why;  // the designer's reason
  std::optional<Estimate> estimate;
  std::optional<Measurement> measurement;
  double seconds = 0;
  absl::Time start_time = absl::InfinitePast();
  absl::Time end_time = absl::InfinitePast();
};

// One step of a running probe.
struct TrialProgress {
  int64_t study_id = 0;
  int64_t number = 0;
  int64_t step = 0;
  double step_seconds = 0;
  double loss = 0;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
};

// "studies/7", "studies/7/trials/3"
std::string StudyName(int64_t study_id);
std::string TrialName(int64_t study_id, int64_t number);
// The id in "studies/7" or "7"; nothing for anything else.
std::optional<int64_t> ParseStudyName(std::string_view name);
// (study, number) of "studies/7/trials/3"; nothing for anything else.
std::optional<std::pair<int64_t, int64_t>> ParseTrialName(std::string_view name);

// What identifies the workload, whatever its model is called.
std::string WorkloadKey(const Workload& workload);
// What identifies a request: one that is repeated has the same.
std::string RequestHash(const StudySpec& spec);

}  // namespace hbmtune::daemon

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/visit.h"
#include "kernels/core/workload.h"

// A recorded run beside the estimate of it: made by the tuner, sent by the daemon, printed by the
// client.
namespace hbmtune {

struct PhaseVerification {
  std::string phase;
  int64_t step = 0;
  int64_t recorded_peak_bytes = 0;
  int64_t expected_peak_bytes = 0;
  int64_t activation_bytes = 0;
  double error_ratio = 0;
  bool same_events = false;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"phase", "phase of the step"}, self.phase);
    v(Field{"step", "optimizer step, 0 for the setup"}, self.step);
    v(Field{"recorded_peak_bytes", "most bytes live in it, recorded"}, self.recorded_peak_bytes);
    v(Field{"expected_peak_bytes", "most bytes live in it, estimated"},
      self.expected_peak_bytes);
    v(Field{"activation_bytes", "of the recorded peak, what is no weight, gradient or state"},
      self.activation_bytes);
    v(Field{"error_ratio", "difference of the peaks, as a share of the activations"},
      self.error_ratio);
    v(Field{"same_events", "every allocation and free is the same"}, self.same_events);
  }
};

// Bytes under 0 are freed; 0 with an empty op: there is no such event.
struct FirstDifference {
  std::string phase;
  int64_t step = 0;
  int64_t event = 0;
  int64_t recorded_bytes = 0;
  std::string recorded_op;
  int64_t expected_bytes = 0;
  std::string expected_op;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"phase", "phase of the step"}, self.phase);
    v(Field{"step", "optimizer step, 0 for the setup"}, self.step);
    v(Field{"event", "number of the event in the phase, from 0"}, self.event);
    v(Field{"recorded_bytes", "allocated, or freed if under 0; recorded"}, self.recorded_bytes);
    v(Field{"recorded_op", "operation, recorded"}, self.recorded_op);
    v(Field{"expected_bytes", "allocated, or freed if under 0; estimated"},
      self.expected_bytes);
    v(Field{"expected_op", "operation, estimated"}, self.expected_op);
  }
};

struct Verification {
  std::string name;
  Workload workload;
  TrainConfig train_config;
  double worst_ratio = 0;
  std::string worst_phase;
  bool same_events = false;
  int64_t recorded_events = 0;
  int64_t expected_events = 0;
  std::vector<PhaseVerification> phases;
  std::optional<FirstDifference> first_difference;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"name", "name of the run"}, self.name);
    v(Field{"workload", "what was trained"}, self.workload);
    v(Field{"train_config", "how it was trained"}, self.train_config);
    v(Field{"worst_ratio", "largest difference of a phase's peak, as a share of activations"},
      self.worst_ratio);
    v(Field{"worst_phase", "where that is"}, self.worst_phase);
    v(Field{"same_events", "every allocation and free is the same, in the same order"},
      self.same_events);
    v(Field{"recorded_events", "allocations and frees, recorded"}, self.recorded_events);
    v(Field{"expected_events", "allocations and frees, estimated"}, self.expected_events);
    v(Field{"phases", "the phases"}, self.phases);
    v(Field{"first_difference", "where recording and estimate part"}, self.first_difference);
  }
};

}  // namespace hbmtune

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/lowering/hf.h"

namespace hbmtune::testing {

// One allocation (bytes > 0) or free (bytes < 0); allocations are numbered in their order.
struct MemoryEvent {
  int64_t bytes = 0;
  int64_t allocation = 0;
  std::string label;  // who, for people

  bool operator==(const MemoryEvent& other) const {
    return bytes == other.bytes && allocation == other.allocation;
  }
};

struct PhaseEvents {
  std::string name;  // "forward", "backward", "clip", "optimizer", "zero_grad", "eval"
  int64_t step = 0;  // 0 is the setup
  std::vector<MemoryEvent> events;
};

// A recorded run, and what it says in our words.
struct HfRecording {
  std::string name;
  Workload workload;
  TrainConfig config;
  lowering::HfOptions options;
  std::vector<PhaseEvents> phases;
  std::vector<bool> owned;  // by allocation: a parameter, gradient or optimizer state
};

std::vector<HfRecording> LoadRecordings(const std::string& path);
// The device allocations of a Program, phase by phase, as a recording would show them.
std::vector<PhaseEvents> EventsOf(const Program& program);

struct RecordingError {
  double worst = 0;       // of all phases, relative to the peak's activations
  std::string where;      // of the worst
  bool same_events = false;
  std::string first_difference;
};
RecordingError CompareToRecording(const HfRecording& recording,
                                  const std::vector<PhaseEvents>& program);

}  // namespace hbmtune::testing

#include "tuner/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/core/json.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {
namespace {

// The running sum at its highest in each phase, and what of it is activations.
struct PhasePeak {
  int64_t bytes = 0;
  int64_t activations = 0;
};

std::vector<PhasePeak> Peaks(const std::vector<PhaseEvents>& phases,
                             const std::vector<bool>& owned) {
  std::vector<PhasePeak> peaks;
  int64_t live = 0, held = 0;
  for (const PhaseEvents& phase : phases) {
    PhasePeak peak{live, live - held};
    for (const MemoryEvent& event : phase.events) {
      const auto number = static_cast<size_t>(event.allocation);
      live += event.bytes;
      if (number < owned.size() && owned[number]) held += event.bytes;
      if (live > peak.bytes) peak = {live, live - held};
    }
    peaks.push_back(peak);
  }
  return peaks;
}

FirstDifference Difference(const PhaseEvents& recorded, const PhaseEvents& expected) {
  const size_t both = std::min(recorded.events.size(), expected.events.size());
  size_t i = 0;
  while (i < both && recorded.events[i] == expected.events[i]) ++i;
  FirstDifference difference{recorded.name, recorded.step, static_cast<int64_t>(i), 0, "", 0, ""};
  if (i < recorded.events.size()) {
    difference.recorded_bytes = recorded.events[i].bytes;
    difference.recorded_op = recorded.events[i].op;
  }
  if (i < expected.events.size()) {
    difference.expected_bytes = expected.events[i].bytes;
    difference.expected_op = expected.events[i].op;
  }
  return difference;
}

int64_t EventCount(const std::vector<PhaseEvents>& phases) {
  int64_t count = 0;
  for (const PhaseEvents& phase : phases) count += static_cast<int64_t>(phase.events.size());
  return count;
}

// A phase that only one of the two has counts as one without events in the other.
const PhaseEvents& At(const std::vector<PhaseEvents>& phases, size_t i,
                      const PhaseEvents& missing) {
  return i < phases.size() ? phases[i] : missing;
}

void Compare(const Recording& recording, const std::vector<PhaseEvents>& expected,
             Verification& result) {
  const auto truth = Peaks(recording.phases, recording.owned);
  const auto ours = Peaks(expected, {});
  // Clipping and stepping have next to no activations: a hundredth of the run's is the least base.
  int64_t most = 1;
  for (const PhasePeak& peak : truth) most = std::max(most, peak.activations);
  result.same_events = true;
  for (size_t p = 0; p < std::max(truth.size(), ours.size()); ++p) {
    const PhaseEvents& known = p < truth.size() ? recording.phases[p] : expected[p];
    const PhaseEvents missing{known.name, known.step, {}};
    const PhaseEvents& recorded = At(recording.phases, p, missing);
    const PhaseEvents& estimated = At(expected, p, missing);
    PhaseVerification phase{recorded.name, recorded.step, 0, 0, 0, 0, false};
    if (p < truth.size()) phase.recorded_peak_bytes = truth[p].bytes;
    if (p < ours.size()) phase.expected_peak_bytes = ours[p].bytes;
    if (p < truth.size()) phase.activation_bytes = truth[p].activations;
    const int64_t off = std::abs(phase.expected_peak_bytes - phase.recorded_peak_bytes);
    phase.error_ratio = double(off) / double(std::max(phase.activation_bytes, most / 100 + 1));
    phase.same_events = recorded.events == estimated.events;
    if (!phase.same_events && result.same_events) {
      result.first_difference = Difference(recorded, estimated);
    }
    result.same_events = result.same_events && phase.same_events;
    // Neither setup nor the dropping of gradients has a peak of its own.
    const bool has_peak = phase.phase != "setup" && phase.phase != "zero_grad";
    if (has_peak && phase.error_ratio > result.worst_ratio) {
      result.worst_ratio = phase.error_ratio;
      result.worst_phase = phase.phase;
    }
    result.phases.push_back(std::move(phase));
  }
}

}  // namespace

Verification VerifyProgram(const Recording& recording, const Program& program) {
  Verification result;
  result.name = recording.name;
  result.workload = recording.workload;
  result.train_config = recording.config;
  const auto expected = EventsOf(program);
  result.recorded_events = EventCount(recording.phases);
  result.expected_events = EventCount(expected);
  Compare(recording, expected, result);
  return result;
}

absl::StatusOr<Verification> Verify(const std::string& recording_json) {
  const Json run = Json::parse(recording_json, nullptr, false);
  if (run.is_discarded()) return absl::InvalidArgumentError("the recording is no JSON");
  return VerifyRun(run);
}

absl::StatusOr<Verification> VerifyRun(const Json& run) {
  try {
    const Recording recording = ReadRecording(run);
    if (absl::Status status = ValidateWorkload(recording.workload); !status.ok()) return status;
    return VerifyProgram(recording, lowering::LowerHf(recording.workload, recording.config,
                                                      recording.options));
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(error.what());
  } catch (const Json::exception&) {  // its text is for who programs with it
    return absl::InvalidArgumentError("the recording has a value of a type that it cannot have");
  }
}

}  // namespace hbmtune::tuner

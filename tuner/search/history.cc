#include "tuner/search/history.h"

#include "kernels/core/field_path.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {
namespace {

// Fields that are not as the framework has them by itself.
int64_t Unusual(Framework framework, const TrainConfig& config) {
  const TrainConfig base = BaseConfig(framework, DeviceFacts{});
  int64_t count = 0;
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    count += GetField(base, path) != GetField(config, path);
  }
  return count;
}

bool MeasuredAs(const Trial& trial, Outcome outcome) {
  return trial.measurement && trial.measurement->outcome == outcome;
}

// 1 saves nothing, 0 saves something.
int Hunger(OptimizerOffload offload) { return offload == OptimizerOffload::kNone ? 1 : 0; }
int Hunger(ActivationOffload offload) { return offload == ActivationOffload::kNone ? 1 : 0; }
int Hunger(const CheckpointConfig& c) {
  return c.every == 0 && c.attention == 0 && c.mlp == 0 ? 1 : 0;
}

// The same configs but for what RulesOut orders.
TrainConfig Rest(TrainConfig config) {
  config.micro_batch = 1;
  config.grad_accum = 1;
  config.checkpoint = CheckpointConfig{};
  config.offload.optimizer = OptimizerOffload::kNone;
  config.offload.activations = ActivationOffload::kNone;
  return config;
}

template <class T>
bool Same(const T& a, const T& b) {
  return ToJson(a) == ToJson(b);
}

}  // namespace

bool Fitted(const Trial& trial) {
  if (!trial.finished) return false;
  if (trial.measurement) return trial.measurement->outcome == Outcome::kOk;
  return trial.estimate && trial.estimate->fits;
}

bool RanOutOfMemory(const Trial& trial) {
  if (!trial.finished) return false;
  if (trial.measurement) return MeasuredAs(trial, Outcome::kOutOfMemory);
  return trial.estimate && !trial.estimate->fits;
}

bool Failed(const Trial& trial) {
  return trial.finished && !Fitted(trial) && !RanOutOfMemory(trial) &&
         !MeasuredAs(trial, Outcome::kCancelled);
}

double TokensPerSecond(const Trial& trial) {
  if (!Fitted(trial)) return 0;
  return trial.measurement ? trial.measurement->tokens_per_second
                           : trial.estimate->tokens_per_second;
}

int64_t PeakUsedBytes(const Trial& trial) {
  if (trial.measurement) return trial.measurement->peak_used_bytes;
  return trial.estimate ? trial.estimate->peak_used_bytes : 0;
}

Evidence EvidenceOf(Framework framework, const std::optional<Estimate>& estimate,
                    const std::optional<Measurement>& measurement) {
  const bool measured =
      measurement && (measurement->steps > 0 || measurement->outcome == Outcome::kOk ||
                      measurement->outcome == Outcome::kOutOfMemory ||
                      measurement->outcome == Outcome::kNotFinite);
  if (!measured) return estimate ? estimate->evidence : Evidence::kPredicted;
  // Through our own kernels only `fused` is the framework itself.
  return framework == Framework::kFused ? Evidence::kMeasured : Evidence::kReplayed;
}

bool Ahead(Framework framework, const Trial& a, const Trial& b) {
  if (TokensPerSecond(a) != TokensPerSecond(b)) return TokensPerSecond(a) > TokensPerSecond(b);
  int64_t unusual_a = Unusual(framework, a.config);
  int64_t unusual_b = Unusual(framework, b.config);
  if (unusual_a != unusual_b) return unusual_a < unusual_b;
  return PeakUsedBytes(a) < PeakUsedBytes(b);
}

const Trial* FindBest(Framework framework, const History& history) {
  const Trial* best = nullptr;
  for (const Trial& trial : history) {
    if (Fitted(trial) && (best == nullptr || Ahead(framework, trial, *best))) best = &trial;
  }
  return best;
}

bool RulesOut(const TrainConfig& out_of_memory, const TrainConfig& other) {
  const TrainConfig& a = out_of_memory;
  if (other.micro_batch < a.micro_batch) return false;
  bool hungrier = Hunger(other.offload.optimizer) >= Hunger(a.offload.optimizer) &&
                  Hunger(other.offload.activations) >= Hunger(a.offload.activations) &&
                  Hunger(other.checkpoint) >= Hunger(a.checkpoint);
  if (!hungrier) return false;
  // Two ways of saving are not ordered among themselves: 4 layers a segment or 6, stream or CPU.
  if (Hunger(other.checkpoint) == Hunger(a.checkpoint) && !Same(a.checkpoint, other.checkpoint)) {
    return false;
  }
  if (Hunger(other.offload.optimizer) == Hunger(a.offload.optimizer) &&
      a.offload.optimizer != other.offload.optimizer) {
    return false;
  }
  return Same(Rest(a), Rest(other));
}

}  // namespace hbmtune::tuner

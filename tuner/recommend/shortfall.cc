#include <algorithm>

#include "kernels/core/field_path.h"
#include "kernels/core/json.h"
#include "kernels/core/precision.h"
#include "kernels/core/units.h"
#include "tuner/recommend/describe.h"
#include "tuner/recommend/recommend.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

constexpr size_t kMostHints = 5;
constexpr double kWorthSaying = 0.005;  // of the least config's memory

struct Least {
  TrainConfig config;
  Estimate estimate;
};

void TakeIfLess(const Workload& workload, const TrainConfig& config,
                const WorkloadEstimator& estimator, std::optional<Least>& least) {
  absl::StatusOr<Estimate> estimate = estimator(workload, config);
  if (!estimate.ok()) return;
  if (!least || estimate->peak_used_bytes < least->estimate.peak_used_bytes) {
    least = Least{config, *std::move(estimate)};
  }
}

// The setting that needs least, then its refining axes as long as they help.
std::optional<Least> FindLeast(const Space& space, const WorkloadEstimator& estimator) {
  std::optional<Least> least;
  for (const TrainConfig& setting : space.Settings()) {
    TakeIfLess(space.workload(), setting, estimator, least);
  }
  if (!least) return least;
  int64_t before = INT64_MAX;
  while (least->estimate.peak_used_bytes < before) {
    before = least->estimate.peak_used_bytes;
    for (const TrainConfig& refined : space.Refinements(least->config)) {
      TakeIfLess(space.workload(), refined, estimator, least);
    }
  }
  return least;
}

struct Change {
  std::string text;
  Workload workload;
  TrainConfig config;
};

// One field, and what must change with it to stay legal.
void AddChange(const Workload& workload, TrainConfig config, const std::string& path,
               const Json& value, std::vector<Change>& changes) {
  std::string text =
      Text(path, "=", value.is_string() ? value.get<std::string>() : value.dump());
  if (path == "precision") {
    ApplyPrecision(*ParseEnum<Precision>(value.get<std::string>()), workload.framework, config);
  } else {
    SetField(config, path, value);
  }
  if (path == "checkpoint.every") config.checkpoint.attention = config.checkpoint.mlp = 0;
  if (path == "checkpoint.attention" || path == "checkpoint.mlp") config.checkpoint.every = 0;
  if (path == "offload.activations" && value == "checkpoints") config.checkpoint.every = 1;
  bool needs_stage = UsesDeepspeed(workload.framework) && config.zero.stage == 0 &&
                     config.offload.optimizer != OptimizerOffload::kNone;
  if (needs_stage) {
    config.zero.stage = 2;
    text += " with zero.stage=2";
  }
  changes.push_back({text, workload, config});
}

// The same global batch over more ranks.
void AddRanks(Workload workload, TrainConfig config, int64_t ranks,
              std::vector<Change>& changes) {
  bool has_zero = workload.framework == Framework::kFused || UsesDeepspeed(workload.framework);
  if (!has_zero || ranks <= workload.world_size) return;
  if (workload.global_batch > 0) {
    if (workload.global_batch % (ranks * config.micro_batch) != 0) return;
    config.grad_accum = workload.global_batch / ranks / config.micro_batch;
  }
  workload.world_size = ranks;
  config.zero.stage = std::max<int64_t>(config.zero.stage, 2);
  changes.push_back({Text("zero.stage=", config.zero.stage, " on ", ranks, " GPUs"), workload,
                     config});
}

std::vector<Change> Changes(const Workload& workload, const DeviceFacts& device,
                            const TrainConfig& least) {
  std::vector<Change> changes;
  absl::StatusOr<Space> unpinned = Space::Create(workload, device);
  if (!unpinned.ok()) return changes;
  for (const Axis& axis : unpinned->axes()) {
    if (axis.path == "precision") continue;
    for (const Json& value : axis.values) {
      if (*GetField(least, axis.path) != value) {
        AddChange(workload, least, axis.path, value, changes);
      }
    }
  }
  for (std::string_view name : EnumNames<Precision>::kNames) {
    AddChange(workload, least, "precision", Json(std::string(name)), changes);
  }
  if (workload.framework == Framework::kFused && least.loss_chunk_tokens == 0) {
    AddChange(workload, least, "loss_chunk_tokens", 1024, changes);
  }
  for (int64_t ranks : {2, 4, 8}) {
    if (!device.host) AddRanks(workload, least, ranks, changes);
  }
  return changes;
}

std::vector<Hint> FindHints(const Workload& workload, const DeviceFacts& device,
                            const Least& least, const WorkloadEstimator& estimator) {
  std::vector<Hint> hints;
  for (const Change& change : Changes(workload, device, least.config)) {
    if (!Validate(change.workload, change.config).ok()) continue;
    absl::StatusOr<Estimate> estimate = estimator(change.workload, change.config);
    if (!estimate.ok()) continue;
    Hint hint;
    hint.change = change.text;
    hint.saved_bytes = least.estimate.peak_used_bytes - estimate->peak_used_bytes;
    hint.fits = estimate->fits;
    double ranks = double(change.workload.world_size) / double(workload.world_size);
    if (estimate->tokens_per_second > 0) {
      hint.cost_ratio =
          ranks * least.estimate.tokens_per_second / estimate->tokens_per_second - 1;
    }
    if (hint.saved_bytes > kWorthSaying * least.estimate.peak_used_bytes) hints.push_back(hint);
  }
  std::stable_sort(hints.begin(), hints.end(), [](const Hint& a, const Hint& b) {
    return a.fits != b.fits ? a.fits : a.saved_bytes > b.saved_bytes;
  });
  if (hints.size() > kMostHints) hints.resize(kMostHints);
  return hints;
}

std::string Message(const Workload& workload, const Least& least) {
  std::string words;
  for (const std::string& part : Describe(workload.framework, least.config)) {
    words += (words.empty() ? "" : ", ") + part;
  }
  std::string needs = FormatBytes(least.estimate.peak_used_bytes) + " (" + words + ")";
  std::string ceiling = FormatBytes(least.estimate.ceiling_bytes);
  if (least.estimate.fits) {
    return Text("nothing that was tried fits in ", ceiling, ", though the least is estimated at ",
                needs);
  }
  return Text("nothing fits in ", ceiling, ": the least is ", needs);
}

}  // namespace

absl::StatusOr<Shortfall> ExplainShortfall(const Space& space, const DeviceFacts& device,
                                           const WorkloadEstimator& estimate) {
  std::optional<Least> least = FindLeast(space, estimate);
  if (!least) {
    return absl::FailedPreconditionError("no config of the space can be estimated on this device");
  }
  Shortfall shortfall;
  shortfall.train_config = least->config;
  shortfall.estimate = least->estimate;
  shortfall.hints = FindHints(space.workload(), device, *least, estimate);
  shortfall.message = Message(space.workload(), *least);
  return shortfall;
}

}  // namespace hbmtune::tuner

#include "tuner/recommend/effects.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "kernels/core/json.h"
#include "tuner/recommend/changes.h"

namespace hbmtune::tuner {
namespace {

// Under these a change is not worth a line: 0.1 % of the memory, 0.5 % of the time.
constexpr double kLeastShare = 0.001;
constexpr double kLeastTime = 0.005;

std::optional<Effect> Try(const Change& change, const TrainConfig& config, const Estimate& now,
                          const WorkloadEstimator& estimator) {
  if (ToJson(change.config) == ToJson(config)) return std::nullopt;
  if (!Validate(change.workload, change.config).ok()) return std::nullopt;
  absl::StatusOr<Estimate> then = estimator(change.workload, change.config);
  if (!then.ok() || then->tokens_per_second <= 0) return std::nullopt;
  Effect effect{change.group, Words(change), 0, 0, 0, then->fits};
  effect.saved_bytes = now.peak_used_bytes - then->peak_used_bytes;
  effect.cost_ratio = now.tokens_per_second / then->tokens_per_second - 1;
  effect.host_bytes = then->host_bytes - now.host_bytes;
  const double share = double(effect.saved_bytes) / double(std::max<int64_t>(
                                                        1, now.peak_used_bytes));
  const bool worth_saying = share > kLeastShare || effect.cost_ratio < -kLeastTime;
  return worth_saying ? std::optional(effect) : std::nullopt;
}

}  // namespace

std::vector<Effect> Effects(const Workload& workload, const DeviceFacts& device,
                            const TrainConfig& config, const Estimate& now,
                            const WorkloadEstimator& estimate) {
  std::vector<Change> changes = TunableChanges(workload, device, config);
  std::vector<Change> batches = BatchChanges(workload, config);
  std::move(batches.begin(), batches.end(), std::back_inserter(changes));
  std::set<std::pair<std::string, int64_t>> seen;  // tunable and what it saves
  std::vector<Effect> effects;
  for (const Change& change : changes) {
    std::optional<Effect> effect = Try(change, config, now, estimate);
    if (!effect || !seen.emplace(effect->tunable, effect->saved_bytes).second) continue;
    effects.push_back(*std::move(effect));
  }
  std::stable_sort(effects.begin(), effects.end(), [](const Effect& a, const Effect& b) {
    if (a.saved_bytes != b.saved_bytes) return a.saved_bytes > b.saved_bytes;
    return a.cost_ratio < b.cost_ratio;
  });
  return effects;
}

}  // namespace hbmtune::tuner

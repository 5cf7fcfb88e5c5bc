#include <algorithm>
#include <cstdint>
#include <map>

#include "kernels/core/units.h"
#include "tuner/recommend/changes.h"
#include "tuner/recommend/describe.h"
#include "tuner/recommend/recommend.h"
#include "tuner/search/screen.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

constexpr size_t kMostHints = 5;
constexpr double kWorthSaying = 0.005;  // of the least config's memory

struct Least {
  TrainConfig config;
  Estimate estimate;
};

// The config's peak. `refusal` keeps why the first of those was refused that were.
int64_t TakeIfLess(const Workload& workload, const TrainConfig& config,
                   const WorkloadEstimator& estimator, std::optional<Least>& least,
                   absl::Status& refusal) {
  absl::StatusOr<Estimate> estimate = estimator(workload, config);
  if (!estimate.ok()) {
    refusal.Update(estimate.status());
    return INT64_MAX;
  }
  int64_t peak = estimate->peak_used_bytes;
  if (!least || peak < least->estimate.peak_used_bytes) {
    least = Least{config, *std::move(estimate)};
  }
  return peak;
}

// The setting that needs least, then its refining axes as long as they help.
absl::StatusOr<Least> FindLeast(const Space& space, const WorkloadEstimator& estimator) {
  absl::Status refusal;
  std::optional<Least> least;
  const std::vector<TrainConfig> settings = space.Settings();
  Explore(settings, [&](size_t i) {
    return -double(TakeIfLess(space.workload(), settings[i], estimator, least, refusal));
  });
  if (!least) {
    return absl::FailedPreconditionError(
        Text("no config of the space can be estimated: ", std::string(refusal.message())));
  }
  int64_t before = INT64_MAX;
  while (least->estimate.peak_used_bytes < before) {
    before = least->estimate.peak_used_bytes;
    for (const TrainConfig& refined : space.Refinements(least->config)) {
      TakeIfLess(space.workload(), refined, estimator, least, refusal);
    }
  }
  return *std::move(least);
}

std::optional<Hint> TryChange(const Workload& workload, const Least& least, const Change& change,
                              const WorkloadEstimator& estimator) {
  if (!Validate(change.workload, change.config).ok()) return std::nullopt;
  absl::StatusOr<Estimate> estimate = estimator(change.workload, change.config);
  if (!estimate.ok()) return std::nullopt;
  Hint hint;
  hint.change = change.text;
  hint.saved_bytes = least.estimate.peak_used_bytes - estimate->peak_used_bytes;
  hint.fits = estimate->fits;
  double ranks = double(change.workload.world_size) / double(workload.world_size);
  if (estimate->tokens_per_second > 0) {
    hint.cost_ratio = ranks * least.estimate.tokens_per_second / estimate->tokens_per_second - 1;
  }
  bool worth_saying = hint.saved_bytes > kWorthSaying * least.estimate.peak_used_bytes;
  return worth_saying ? std::optional(hint) : std::nullopt;
}

std::vector<Hint> FindHints(const Workload& workload, const DeviceFacts& device,
                            const Least& least, const WorkloadEstimator& estimator) {
  std::map<std::string, Hint> by_group;
  std::vector<Change> changes = TunableChanges(workload, device, least.config);
  for (Change& change : WorkloadChanges(workload, device, least.config)) {
    changes.push_back(std::move(change));
  }
  for (const Change& change : changes) {
    std::optional<Hint> hint = TryChange(workload, least, change, estimator);
    if (!hint) continue;
    auto [known, added] = by_group.emplace(change.group, *hint);
    bool better = !known->second.fits &&
                  (hint->fits || hint->saved_bytes > known->second.saved_bytes);
    if (!added && better) known->second = *hint;
  }
  std::vector<Hint> hints;
  for (auto& [group, hint] : by_group) hints.push_back(std::move(hint));
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
  if (least.estimate.ceiling_bytes == 0) {
    return Text("nothing fits: of ", FormatBytes(least.estimate.capacity_bytes),
                " the larger of 5 % and 2 GiB stays free, so none may be used (set a ceiling to "
                "change that); the least is ", needs);
  }
  std::string ceiling = FormatBytes(least.estimate.ceiling_bytes);
  if (least.estimate.fits) {
    return Text("nothing that was tried fits in ", ceiling, ", though the least is estimated at ",
                needs);
  }
  if (least.estimate.peak_used_bytes <= least.estimate.ceiling_bytes) {
    return Text("nothing fits in the host's memory: the config that needs least of the device (",
                words, ") needs ", FormatBytes(least.estimate.host_bytes), " there");
  }
  return Text("nothing fits in ", ceiling, ": the least is ", needs);
}

}  // namespace

absl::StatusOr<Shortfall> ExplainShortfall(const Space& space, const DeviceFacts& device,
                                           const WorkloadEstimator& estimate) {
  absl::StatusOr<Least> least = FindLeast(space, estimate);
  if (!least.ok()) return least.status();
  Shortfall shortfall;
  shortfall.train_config = least->config;
  shortfall.estimate = least->estimate;
  shortfall.hints = FindHints(space.workload(), device, *least, estimate);
  shortfall.message = Message(space.workload(), *least);
  return shortfall;
}

}  // namespace hbmtune::tuner

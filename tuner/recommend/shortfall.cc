#include <algorithm>
#include <cstdint>
#include <optional>

#include "kernels/core/units.h"
#include "tuner/recommend/describe.h"
#include "tuner/recommend/hints.h"
#include "tuner/recommend/recommend.h"
#include "tuner/search/screen.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

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

absl::StatusOr<Shortfall> FindShortfall(const Space& space, const WorkloadEstimator& estimate) {
  absl::StatusOr<Least> least = FindLeast(space, estimate);
  if (!least.ok()) return least.status();
  return Shortfall{least->config, least->estimate, {}, Message(space.workload(), *least)};
}

absl::StatusOr<Shortfall> ExplainShortfall(const Space& space, const DeviceFacts& device,
                                           const WorkloadEstimator& estimate,
                                           const std::vector<LargerDevice>& larger,
                                           const std::function<bool()>& stop) {
  absl::StatusOr<Shortfall> shortfall = FindShortfall(space, estimate);
  if (!shortfall.ok()) return shortfall;
  shortfall->hints = FindHints(space.workload(), device, *shortfall, estimate, larger, stop);
  const bool helped = std::any_of(shortfall->hints.begin(), shortfall->hints.end(),
                                  [](const Hint& hint) { return hint.fits; });
  if (!helped && !shortfall->estimate.fits) {
    shortfall->message += "; no change that was tried makes it fit, alone or with another";
  }
  return shortfall;
}

}  // namespace hbmtune::tuner

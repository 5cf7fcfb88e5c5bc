#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

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
  bool cut_short = false;  // there may be less among what was not estimated
};

// What of the configs shown to it needs least, by at most kMostLeastEstimates estimates.
class LeastFinder {
 public:
  LeastFinder(Workload workload, const WorkloadEstimator& estimator)
      : workload_(std::move(workload)), estimator_(estimator) {}

  // The config's peak; infinite if it is refused or there were enough.
  double Show(const TrainConfig& config) {
    if (estimates_++ >= kMostLeastEstimates) return INFINITY;  // counted: see cut_short
    absl::StatusOr<Estimate> estimate = estimator_(workload_, config);
    if (!estimate.ok()) {
      refusal_.Update(estimate.status());
      return INFINITY;
    }
    const auto peak = double(estimate->peak_used_bytes);
    if (!least_ || peak < Peak()) least_ = Least{config, *std::move(estimate), false};
    return peak;
  }

  bool cut_short() const { return estimates_ > kMostLeastEstimates; }
  double Peak() const { return double(least_->estimate.peak_used_bytes); }
  const std::optional<Least>& least() const { return least_; }
  // Why the first of those was refused that were.
  const absl::Status& refusal() const { return refusal_; }

 private:
  Workload workload_;
  const WorkloadEstimator& estimator_;
  std::optional<Least> least_;
  absl::Status refusal_;
  int estimates_ = 0;
};

// The setting that needs least, then its refining axes as long as they help. Padded rows are ranked
// by rows of full length: a run of ten steps costs ten times as much, and which is least differs
// little.
absl::StatusOr<Least> FindLeast(const Space& space, const WorkloadEstimator& estimator) {
  Workload ranked = space.workload();
  const bool padded = ranked.sequences.layout == SequenceLayout::kPadded;
  if (padded) ranked.sequences.layout = SequenceLayout::kFixed;
  LeastFinder finder(ranked, estimator);
  std::vector<TrainConfig> settings = space.Settings();
  std::reverse(settings.begin(), settings.end());  // those that save most first
  Explore(settings, [&](size_t i) { return -finder.Show(settings[i]); });
  if (!finder.least()) {
    return absl::FailedPreconditionError(Text("no config of the space can be estimated: ",
                                              std::string(finder.refusal().message())));
  }
  double before = INFINITY;
  while (finder.Peak() < before) {
    before = finder.Peak();
    for (const TrainConfig& refined : space.Refinements(finder.least()->config)) {
      finder.Show(refined);
    }
  }
  Least least = *finder.least();
  least.cut_short = finder.cut_short();
  if (!padded) return least;
  absl::StatusOr<Estimate> estimate = estimator(space.workload(), least.config);
  if (!estimate.ok()) return estimate.status();
  least.estimate = *std::move(estimate);
  return least;
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
  if (least.cut_short) {
    return Text("nothing fits in ", ceiling, ": the least of ", kMostLeastEstimates,
                " that were estimated is ", needs);
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
  FoundHints found = FindHints(space.workload(), device, *shortfall, estimate, larger, stop);
  shortfall->hints = std::move(found.hints);
  const bool helped = std::any_of(shortfall->hints.begin(), shortfall->hints.end(),
                                  [](const Hint& hint) { return hint.fits; });
  if (!helped && !shortfall->estimate.fits) {
    shortfall->message += found.all_tried
                              ? "; no change that was tried makes it fit, alone or with another"
                              : "; there was no time to try every change";
  }
  return shortfall;
}

}  // namespace hbmtune::tuner

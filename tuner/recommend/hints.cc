#include "tuner/recommend/hints.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "tuner/recommend/changes.h"

namespace hbmtune::tuner {
namespace {

constexpr size_t kMostHints = 4;
constexpr size_t kMostLeads = 4;        // those that a second change is added to
constexpr double kWorthSaying = 0.005;  // of the least config's memory

struct Tried {
  Change change;
  Hint hint;
};

class HintFinder {
 public:
  HintFinder(const Workload& workload, const DeviceFacts& device, const Shortfall& shortfall,
             const WorkloadEstimator& estimate, const std::vector<LargerDevice>& larger,
             const std::function<bool()>& stop)
      : workload_(workload), device_(device), shortfall_(shortfall), estimate_(estimate),
        larger_(larger), stop_(stop) {}

  FoundHints Find() {
    const TrainConfig& config = shortfall_.train_config;
    const Change none{Reach::kSetting, "", "", workload_, config, {}};
    for (const Change& change : WorkloadChanges(workload_, device_, config)) {
      Try(change, estimate_);
    }
    TryDevices(none);
    for (const Change& change : TunableChanges(workload_, device_, config)) {
      Try(change, estimate_);
    }
    if (!shortfall_.estimate.fits && !AnyFits()) {
      for (const Change& lead : Leads()) TryWith(lead);
    }
    return {Best(), !cut_short_};
  }

 private:
  // Of a group the first that fits is kept, since the least change comes first; else what saves
  // most.
  void Try(const Change& change, const WorkloadEstimator& estimator) {
    auto known = by_group_.find(change.group);
    const bool added = known == by_group_.end();
    if ((!added && known->second.hint.fits && !shortfall_.estimate.fits) || stopped() ||
        !Validate(change.workload, change.config).ok()) {
      return;
    }
    ++estimates_;
    absl::StatusOr<Estimate> estimate = estimator(change.workload, change.config);
    if (!estimate.ok()) return;
    const Hint hint = MakeHint(change, *estimate);
    if (!WorthSaying(hint)) return;
    if (added || hint.fits || hint.saved_bytes > known->second.hint.saved_bytes) {
      by_group_[change.group] = {change, hint};
    }
  }

  Hint MakeHint(const Change& change, const Estimate& then) const {
    const Estimate& now = shortfall_.estimate;
    Hint hint;
    hint.change = Words(change);
    hint.saved_bytes = now.peak_used_bytes - then.peak_used_bytes;
    hint.peak_used_bytes = then.peak_used_bytes;
    hint.fits = then.fits;
    double ranks = double(change.workload.world_size) / double(workload_.world_size);
    if (then.tokens_per_second > 0) {
      hint.cost_ratio = ranks * now.tokens_per_second / then.tokens_per_second - 1;
    }
    return hint;
  }

  bool WorthSaying(const Hint& hint) const {
    if (hint.fits && !shortfall_.estimate.fits) return true;
    return double(hint.saved_bytes) > kWorthSaying * double(shortfall_.estimate.peak_used_bytes);
  }

  bool stopped() {
    cut_short_ = cut_short_ || estimates_ == kMostHintEstimates || (stop_ && stop_());
    return cut_short_;
  }

  void TryDevices(const Change& from) {
    for (const LargerDevice& device : larger_) {
      Change change{Reach::kDevice, "device", "device=" + device.name, from.workload, from.config,
                    {}};
      Try(from.group.empty() ? change : Both(from, change), device.estimate);
    }
  }

  void TryWith(const Change& lead) {
    std::vector<Change> seconds = WorkloadChanges(lead.workload, device_, lead.config);
    for (Change& change : TunableChanges(lead.workload, device_, lead.config)) {
      if (SavesMuch(change.group)) seconds.push_back(std::move(change));
    }
    for (const Change& second : seconds) {
      if (second.group != lead.group) Try(Both(lead, second), estimate_);
    }
    TryDevices(lead);
  }

  // Tunables that can make up for gigabytes.
  static bool SavesMuch(std::string_view group) {
    return group == "precision" || group == "zero.stage" || group == "loss_chunk_tokens" ||
           group.starts_with("offload.") || group == "checkpoint.every";
  }

  bool AnyFits() const {
    return std::any_of(by_group_.begin(), by_group_.end(),
                       [](const auto& entry) { return entry.second.hint.fits; });
  }

  std::vector<Tried> MostSaved() const {
    std::vector<Tried> tried;
    for (const auto& [group, one] : by_group_) tried.push_back(one);
    std::stable_sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) {
      return a.hint.saved_bytes > b.hint.saved_bytes;
    });
    return tried;
  }

  std::vector<Change> Leads() const {
    std::vector<Change> leads;
    for (Tried& one : MostSaved()) {
      if (leads.size() < kMostLeads) leads.push_back(std::move(one.change));
    }
    return leads;
  }

  std::vector<Hint> Best() const {
    std::vector<Tried> tried = MostSaved();
    if (AnyFits() && !shortfall_.estimate.fits) {
      std::erase_if(tried, [](const Tried& one) { return !one.hint.fits; });
      auto size = [](const Tried& one) {
        return std::tuple(one.change.reach, one.change.workload.world_size, one.hint.cost_ratio);
      };
      std::stable_sort(tried.begin(), tried.end(),
                       [&](const Tried& a, const Tried& b) { return size(a) < size(b); });
    }
    if (tried.size() > kMostHints) tried.resize(kMostHints);
    std::vector<Hint> hints;
    for (Tried& one : tried) hints.push_back(std::move(one.hint));
    return hints;
  }

  const Workload& workload_;
  const DeviceFacts& device_;
  const Shortfall& shortfall_;
  const WorkloadEstimator& estimate_;
  const std::vector<LargerDevice>& larger_;
  const std::function<bool()>& stop_;
  std::map<std::string, Tried> by_group_;
  int estimates_ = 0;
  bool cut_short_ = false;
};

}  // namespace

FoundHints FindHints(const Workload& workload, const DeviceFacts& device,
                     const Shortfall& shortfall, const WorkloadEstimator& estimate,
                     const std::vector<LargerDevice>& larger, const std::function<bool()>& stop) {
  return HintFinder(workload, device, shortfall, estimate, larger, stop).Find();
}

}  // namespace hbmtune::tuner

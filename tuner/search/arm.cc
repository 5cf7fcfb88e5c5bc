#include "tuner/search/arm.h"

#include <algorithm>
#include <cmath>

namespace hbmtune::tuner {

std::string SettingKey(const Space& space, const TrainConfig& config) {
  return ToJson(space.WithMicroBatch(config, space.micro_batches().front())).dump();
}

const Estimate* EstimateCache::Find(const TrainConfig& config) {
  if (!estimator_) return nullptr;
  std::string key = ToJson(config).dump();
  auto found = answers_.find(key);
  if (found == answers_.end()) {
    if (stopped()) return nullptr;
    absl::StatusOr<Estimate> estimate = estimator_(config);
    Answer answer{config, std::nullopt};
    if (estimate.ok()) answer.estimate = *std::move(estimate);
    found = answers_.emplace(std::move(key), std::move(answer)).first;
  }
  return found->second.estimate ? &*found->second.estimate : nullptr;
}

std::optional<TrainConfig> EstimateCache::Best(Framework framework) const {
  History fitting;
  for (const auto& [key, answer] : answers_) {
    if (!answer.estimate || !answer.estimate->fits) continue;
    fitting.push_back({answer.config, answer.estimate, std::nullopt});
  }
  const Trial* best = FindBest(framework, fitting);
  return best == nullptr ? std::nullopt : std::optional(best->config);
}

int64_t AtMost(const std::vector<int64_t>& micro_batches, int64_t value) {
  auto above = std::upper_bound(micro_batches.begin(), micro_batches.end(), value);
  return above == micro_batches.begin() ? 0 : *std::prev(above);
}

int64_t Above(const std::vector<int64_t>& micro_batches, int64_t value) {
  auto above = std::upper_bound(micro_batches.begin(), micro_batches.end(), value);
  return above == micro_batches.end() ? 0 : *above;
}

int64_t LimitTarget(const std::vector<int64_t>& micro_batches, int64_t fits) {
  int64_t next = Above(micro_batches, fits);
  return next == 0 ? 0 : std::max(next, AtMost(micro_batches, fits + fits / 4));
}

namespace {

// Memory is close to linear in the micro-batch: interpolate between what fits and what does not,
// and fall back on halves should that not close in.
class LimitFinder {
 public:
  LimitFinder(const Space& space, const TrainConfig& setting, EstimateCache& estimates,
              double memory_scale)
      : space_(space), values_(space.micro_batches()), setting_(setting), estimates_(estimates),
        memory_scale_(memory_scale) {}

  bool Fits(size_t i) {
    const Estimate* estimate = At(i);
    if (estimate == nullptr) return false;
    return memory_scale_ == 1 ? estimate->fits : Peak(*estimate) <= double(estimate->ceiling_bytes);
  }

  // Index of the largest micro-batch that fits, given that the smallest does. `hint` is a likely
  // one.
  size_t Find(size_t hint) {
    size_t low = 0;
    size_t high = values_.size();
    if (hint > 0) (Fits(hint) ? low : high) = hint;
    if (low > 0 && low + 1 < values_.size()) (Fits(low + 1) ? low : high) = low + 1;
    for (size_t next = std::max<size_t>(1, 4 * low); next < high; next *= 4) {
      (Fits(next) ? low : high) = next;
    }
    for (int step = 0; high - low > 1; ++step) {
      size_t middle = low + (high - low) / 2;
      if (step < 3 && high < values_.size()) middle = Interpolated(low, high);
      (Fits(middle) ? low : high) = middle;
    }
    return low;
  }

 private:
  const Estimate* At(size_t i) {
    return estimates_.Find(space_.WithMicroBatch(setting_, values_[i]));
  }
  double Peak(const Estimate& estimate) const {
    return memory_scale_ * double(estimate.peak_used_bytes);
  }
  size_t Interpolated(size_t low, size_t high) {
    const Estimate* below = At(low);
    const Estimate* above = At(high);
    size_t middle = low + (high - low) / 2;
    if (above == nullptr || above->peak_used_bytes <= below->peak_used_bytes) return middle;
    double share = (double(below->ceiling_bytes) - Peak(*below)) / (Peak(*above) - Peak(*below));
    double wanted = values_[low] + share * double(values_[high] - values_[low]);
    auto it = std::upper_bound(values_.begin(), values_.end(), int64_t(std::floor(wanted)));
    auto index = static_cast<size_t>(it - values_.begin());
    return std::clamp(index, low + 1, high - 1);
  }

  const Space& space_;
  const std::vector<int64_t>& values_;
  const TrainConfig& setting_;
  EstimateCache& estimates_;
  double memory_scale_;
};

}  // namespace

Arm MakeArm(const Space& space, const TrainConfig& setting, EstimateCache& estimates,
            double memory_scale, int64_t hint) {
  Arm arm;
  arm.setting = setting;
  arm.key = SettingKey(space, setting);
  const std::vector<int64_t>& values = space.micro_batches();
  const Estimate* least = estimates.Find(space.WithMicroBatch(setting, values.front()));
  if (least == nullptr) return arm;
  arm.estimated = true;
  arm.least_bytes = least->peak_used_bytes;
  LimitFinder limit(space, setting, estimates, memory_scale);
  if (!limit.Fits(0)) return arm;
  auto likely = std::lower_bound(values.begin(), values.end(), hint) - values.begin();
  arm.guess = values[limit.Find(std::min<size_t>(likely, values.size() - 1))];
  const Estimate* best = estimates.Find(space.WithMicroBatch(setting, arm.guess));
  arm.tokens_per_second = best->tokens_per_second;
  return arm;
}

Bracket FindBracket(const Space& space, const Arm& arm, const History& history,
                    const std::vector<std::string>& keys) {
  Bracket bracket;
  for (size_t i = 0; i < history.size(); ++i) {
    const Trial& trial = history[i];
    int64_t m = trial.config.micro_batch;
    bool own = keys[i] == arm.key;
    if (own && trial.finished) {
      ++bracket.trials;
      bracket.failed = bracket.failed || Failed(trial);
    }
    if (RanOutOfMemory(trial) &&
        (own || RulesOut(trial.config, space.WithMicroBatch(arm.setting, m)))) {
      bracket.fails = std::min(bracket.fails.value_or(m), m);
    }
    if (!own || !Fitted(trial)) continue;
    if (m >= bracket.fits) {
      bracket.fits = m;
      bracket.last_tokens_per_second = TokensPerSecond(trial);
    }
    if (TokensPerSecond(trial) > bracket.tokens_per_second) {
      bracket.tokens_per_second = TokensPerSecond(trial);
      bracket.fastest = m;
    }
  }
  return bracket;
}

}  // namespace hbmtune::tuner

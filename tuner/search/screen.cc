#include "tuner/search/screen.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace hbmtune::tuner {
namespace {

constexpr size_t kFewSettings = 48;
// Arms whose limit is estimated rather than drawn through two points.
constexpr size_t kLeaders = 8;

// The tunables that are changed one at a time, checkpointing and dtypes each as a whole: their
// fields make sense only together.
std::vector<std::string> Groups(const TrainConfig& c) {
  TrainConfig rest = c;
  rest.checkpoint = CheckpointConfig{};
  rest.offload = OffloadConfig{};
  rest.zero = ZeroConfig{};
  rest.param_dtype = rest.compute_dtype = rest.optimizer_state_dtype = Dtype::kF32;
  rest.master_weights = false;
  rest.loss_scale = LossScaleConfig{};
  std::string dtypes;
  for (Dtype dtype : {c.param_dtype, c.compute_dtype, c.optimizer_state_dtype}) {
    dtypes += std::string(Name(dtype)) + " ";
  }
  dtypes += c.master_weights ? "masters" : "";
  return {ToJson(c.checkpoint).dump(), std::string(Name(c.offload.optimizer)),
          std::string(Name(c.offload.activations)), ToJson(c.zero).dump(), dtypes,
          ToJson(rest).dump()};
}

bool AreNeighbours(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  size_t differing = 0;
  for (size_t i = 0; i < a.size(); ++i) differing += a[i] != b[i];
  return differing == 1;
}

class Climber {
 public:
  Climber(const std::vector<TrainConfig>& settings, const std::function<double(size_t)>& score)
      : score_(score), scores_(settings.size()) {
    for (const TrainConfig& setting : settings) groups_.push_back(Groups(setting));
  }

  void ClimbFrom(size_t start) {
    for (size_t at = start, before = start + 1; at != before;) {
      before = at;
      for (size_t i = 0; i < groups_.size(); ++i) {
        if (AreNeighbours(groups_[before], groups_[i]) && Score(i) > Score(at)) at = i;
      }
    }
  }

 private:
  double Score(size_t i) {
    if (!scores_[i]) scores_[i] = score_(i);
    return *scores_[i];
  }

  const std::function<double(size_t)>& score_;
  std::vector<std::optional<double>> scores_;
  std::vector<std::vector<std::string>> groups_;
};

// y = a + b x through two points.
struct Line {
  double a = 0;
  double b = 0;
  Line(double x1, double y1, double x2, double y2) : b((y2 - y1) / (x2 - x1)) { a = y1 - b * x1; }
  double At(double x) const { return a + b * x; }
};

Arm Sketch(const Space& space, const TrainConfig& setting, EstimateCache& estimates,
           double memory_scale) {
  Arm arm;
  arm.setting = setting;
  arm.key = SettingKey(space, setting);
  const std::vector<int64_t>& values = space.micro_batches();
  auto estimate = [&](int64_t m) { return estimates.Find(space.WithMicroBatch(setting, m)); };
  const Estimate* one = estimate(values.front());
  if (one == nullptr) return arm;
  arm.estimated = true;
  arm.least_bytes = one->peak_used_bytes;
  bool fits = memory_scale == 1 ? one->fits
                                : memory_scale * double(one->peak_used_bytes) <=
                                      double(one->ceiling_bytes);
  if (!fits) return arm;
  arm.guess = values.front();
  arm.tokens_per_second = one->tokens_per_second;
  int64_t more = std::max(Above(values, arm.guess), AtMost(values, 4 * arm.guess));
  const Estimate* two = more > arm.guess ? estimate(more) : nullptr;
  if (two == nullptr || two->peak_used_bytes <= one->peak_used_bytes) return arm;
  auto first = double(arm.guess);
  auto second = double(more);
  Line micro_batch(memory_scale * double(one->peak_used_bytes), first,
                   memory_scale * double(two->peak_used_bytes), second);
  double limit = std::clamp(micro_batch.At(double(one->ceiling_bytes)), first, 1e6);
  arm.guess = AtMost(values, static_cast<int64_t>(limit));
  Line seconds_per_token(1 / first, 1 / one->tokens_per_second, 1 / second,
                         1 / two->tokens_per_second);
  arm.tokens_per_second = 1 / seconds_per_token.At(1 / double(arm.guess));
  return arm;
}

struct MorePromising {
  double resolution_ratio;

  // In steps of the resolution.
  double Speed(const Arm& arm) const {
    if (resolution_ratio <= 0) return arm.tokens_per_second;
    return std::floor(std::log(arm.tokens_per_second) / std::log1p(resolution_ratio));
  }
  bool operator()(const Arm& a, const Arm& b) const {
    if ((a.guess > 0) != (b.guess > 0)) return a.guess > 0;
    if (a.guess > 0) return Speed(a) > Speed(b);
    if (a.estimated != b.estimated) return a.estimated;
    return a.least_bytes < b.least_bytes;
  }
};

// Fitting arms by speed, the others below them by the memory that they need.
double Score(const Arm& arm) {
  if (arm.guess > 0) return arm.tokens_per_second;
  return arm.estimated ? -double(arm.least_bytes) : -INFINITY;
}

}  // namespace

void Explore(const std::vector<TrainConfig>& settings,
             const std::function<double(size_t)>& score) {
  if (settings.size() <= kFewSettings) {
    for (size_t i = 0; i < settings.size(); ++i) score(i);
    return;
  }
  Climber climber(settings, score);
  climber.ClimbFrom(0);
  climber.ClimbFrom(settings.size() - 1);
}

std::vector<Arm> Screen(const Space& space, EstimateCache& estimates, double memory_scale,
                        double resolution_ratio) {
  std::vector<Arm> arms;
  const std::vector<TrainConfig> settings = space.Settings();
  if (!estimates.available()) {
    for (const TrainConfig& setting : settings) {
      arms.push_back(MakeArm(space, setting, estimates));
    }
    return arms;
  }
  std::vector<std::optional<Arm>> sketches(settings.size());
  Explore(settings, [&](size_t i) {
    sketches[i] = Sketch(space, settings[i], estimates, memory_scale);
    return Score(*sketches[i]);
  });
  for (std::optional<Arm>& sketch : sketches) {
    if (sketch) arms.push_back(*std::move(sketch));
  }
  // Settings() goes from plain to elaborate, which a stable sort keeps among equals.
  std::stable_sort(arms.begin(), arms.end(), MorePromising{resolution_ratio});
  size_t leaders = std::min(kLeaders, arms.size());
  for (size_t i = 0; i < leaders; ++i) {
    if (arms[i].guess == 0) continue;
    arms[i] = MakeArm(space, arms[i].setting, estimates, memory_scale, arms[i].guess);
  }
  std::stable_sort(arms.begin(), arms.begin() + static_cast<std::ptrdiff_t>(leaders),
                   MorePromising{resolution_ratio});
  return arms;
}

}  // namespace hbmtune::tuner

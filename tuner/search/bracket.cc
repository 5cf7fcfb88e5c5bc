#include "tuner/search/bracket.h"

#include <algorithm>
#include <cmath>

#include "tuner/search/arm.h"
#include "tuner/search/screen.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

// How far below the best an arm may be expected before it is not worth a trial: the estimate orders
// arms to no better than this, and the first few are tried in any case. A modelled trial repeats
// the estimate, so only those that make up the answer are run.
constexpr double kHopefulShare = 0.85;
constexpr double kResolution = 0.02;
constexpr size_t kFirstArms = 3;
constexpr size_t kModelledArms = 6;
// Arms tried although no estimate says that they fit.
constexpr size_t kHopelessArms = 3;
// Arms this close to the best have their bracket closed.
constexpr double kLeadingShare = 0.9;
// A larger micro-batch this much slower ends an arm's growth.
constexpr double kSlowerShare = 0.97;
// Share of what is left of the time budget that a trial may be expected to take: the first of an
// arm, or one that closes a leader's bracket.
constexpr double kStartShare = 0.6;
constexpr double kCloseShare = 0.9;
constexpr int kMostRefinements = 8;
constexpr double kRefinementGain = 1.01;  // expected, for a real trial
constexpr double kModelledGain = 1.001;

// The history, digested once a decision.
struct View {
  const History& history;
  std::vector<std::string> keys;  // SettingKey of each trial
  const Trial* best = nullptr;
  bool ran_out = false;           // some trial ran out of memory
  double memory_scale = 1;        // median of measured over estimated peak
  double correction = 1;          // median of measured over estimated tokens a second
  double seconds_share = 0;       // median of a trial's seconds × tokens/s / micro-batch
  double seconds_left = 0;        // of the budget; meaningless without one
  double best_tokens() const { return best ? TokensPerSecond(*best) : 0; }
};

double Median(std::vector<double>& values, double otherwise) {
  if (values.empty()) return otherwise;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

View Digest(const Space& space, const History& history, const DesignerOptions& options) {
  View view{history, {}};
  view.best = FindBest(space.workload().framework, history);
  view.seconds_left = options.budget_seconds;
  if (options.search_seconds) view.seconds_left -= options.search_seconds();
  std::vector<double> scales;
  std::vector<double> corrections;
  std::vector<double> shares;
  for (const Trial& trial : history) {
    view.keys.push_back(SettingKey(space, trial.config));
    view.seconds_left -= trial.seconds;
    view.ran_out = view.ran_out || RanOutOfMemory(trial);
    if (!Fitted(trial) || !trial.measurement) continue;
    double tokens = TokensPerSecond(trial);
    shares.push_back(trial.seconds * tokens / double(trial.config.micro_batch));
    if (!trial.estimate || trial.estimate->tokens_per_second <= 0) continue;
    corrections.push_back(tokens / trial.estimate->tokens_per_second);
    if (trial.estimate->peak_used_bytes > 0 && PeakUsedBytes(trial) > 0) {
      scales.push_back(double(PeakUsedBytes(trial)) / double(trial.estimate->peak_used_bytes));
    }
  }
  // In steps of 1/32, so that the arms' guesses do not move with every trial.
  view.memory_scale = std::max(1.0, std::round(32 * Median(scales, 1))) / 32;
  view.correction = Median(corrections, 1);
  view.seconds_share = Median(shares, 0);
  return view;
}

class BracketDesigner : public Designer {
 public:
  BracketDesigner(Space space, Estimator estimator, const DesignerOptions& options)
      : space_(std::move(space)),
        deadline_(options),
        estimates_(std::move(estimator), [this] { return deadline_.Passed(); }),
        options_(options) {}

  Decision Next(const History& history) override {
    std::string stop = MustStop(history, options_);
    if (!stop.empty()) return {std::nullopt, stop};
    for (const Trial& trial : history) {
      if (!trial.finished) return Wait();
    }
    deadline_.Note(history);
    View view = Digest(space_, history, options_);
    if (arms_.empty() || view.memory_scale != memory_scale_) {
      memory_scale_ = view.memory_scale;
      arms_ = Screen(space_, estimates_, memory_scale_, options_.modelled ? 0 : kResolution);
    }
    if (history.empty() && deadline_.Passed()) return CutShort(view);
    for (auto step : {&BracketDesigner::ProbeArms, &BracketDesigner::Refine,
                      &BracketDesigner::FindLimit}) {
      Decision decision = (this->*step)(view);
      stop = MustStop(history, options_);
      if (!stop.empty()) return {std::nullopt, stop};
      if (decision.config) return decision;
    }
    return {std::nullopt, WhyOver(view)};
  }

 private:
  // The budget was spent in the screening: one trial is owed nevertheless.
  Decision CutShort(const View& view);
  Decision ProbeArms(const View& view);
  Decision Refine(const View& view);
  Decision FindLimit(const View& view);
  std::string WhyOver(const View& view);

  bool WorthATrial(size_t rank, const Arm& arm, const View& view) const;
  // `final`: go on until the limit is proven, not only until something fits.
  Decision Probe(const Arm& arm, const View& view, bool final);
  Decision Start(const Arm& arm, const Bracket& bracket, const View& view) const;
  Decision Grow(const Arm& arm, const Bracket& bracket, const View& view) const;
  Decision Narrow(const Arm& arm, const Bracket& bracket, const View& view) const;
  int64_t Affordable(const Arm& arm, const Bracket& bracket, const View& view,
                     int64_t micro_batch) const;

  Decision Try(const Arm& arm, int64_t micro_batch, const std::string& why) const {
    if (micro_batch == 0) return {};
    return {space_.WithMicroBatch(arm.setting, micro_batch),
            Text("micro-batch ", micro_batch, ": ", why)};
  }
  const std::vector<int64_t>& values() const { return space_.micro_batches(); }

  Space space_;
  Deadline deadline_;
  EstimateCache estimates_;
  DesignerOptions options_;
  std::vector<Arm> arms_;  // most promising first
  double memory_scale_ = 1;  // for which they were made
};

Decision BracketDesigner::CutShort(const View& view) {
  std::string stop = MustStop(view.history, options_);
  if (options_.cancelled && options_.cancelled()) return {std::nullopt, stop};
  if (!options_.modelled) return ProbeArms(view);
  std::optional<TrainConfig> best = estimates_.Best(space_.workload().framework);
  if (!best) return {std::nullopt, stop + ", and nothing that was estimated by then fits"};
  return {best, Text("micro-batch ", best->micro_batch, ": the best that was estimated; ", stop)};
}

bool BracketDesigner::WorthATrial(size_t rank, const Arm& arm, const View& view) const {
  if (!estimates_.available()) return true;
  if (options_.modelled) return arm.guess > 0 ? rank < kModelledArms : rank == 0;
  if (arm.guess == 0) return view.best == nullptr && rank < kHopelessArms;
  return rank < kFirstArms ||
         arm.tokens_per_second * view.correction >= kHopefulShare * view.best_tokens();
}

Decision BracketDesigner::ProbeArms(const View& view) {
  for (size_t rank = 0; rank < arms_.size(); ++rank) {
    if (!WorthATrial(rank, arms_[rank], view)) continue;
    Decision decision = Probe(arms_[rank], view, /*final=*/!options_.modelled);
    if (decision.config) return decision;
  }
  return {};
}

Decision BracketDesigner::Probe(const Arm& arm, const View& view, bool final) {
  Bracket bracket = FindBracket(space_, arm, view.history, view.keys);
  if (bracket.failed) return {};
  if (bracket.trials == 0) return Start(arm, bracket, view);
  bool leading = bracket.tokens_per_second >= kLeadingShare * view.best_tokens();
  if (bracket.fits > 0 && (!leading || !final)) return {};
  return bracket.fails ? Narrow(arm, bracket, view) : Grow(arm, bracket, view);
}

Decision BracketDesigner::Start(const Arm& arm, const Bracket& bracket, const View& view) const {
  int64_t start = std::max(arm.guess, values().front());
  // The first real trial also tells how fast this device is: a quarter of the guess is cheap.
  bool calibrates = !options_.modelled && view.history.empty();
  if (calibrates) start = std::max(AtMost(values(), start / 4), values().front());
  if (bracket.fails) start = std::min(start, AtMost(values(), *bracket.fails - 1));
  if (arm.guess == 0) {
    return Try(arm, start,
               estimates_.available() ? "the least there is, though not estimated to fit"
                                      : "the least there is");
  }
  start = Affordable(arm, bracket, view, start);
  return Try(arm, start, calibrates ? "a quarter of what is estimated to fit, to time the device"
                                    : "the largest that is estimated to fit");
}

// What was tried fits: go up until something fails or stops paying.
Decision BracketDesigner::Grow(const Arm& arm, const Bracket& bracket, const View& view) const {
  int64_t above = Above(values(), bracket.fits);
  if (above == 0) return {};
  bool slower = bracket.last_tokens_per_second < kSlowerShare * bracket.tokens_per_second;
  // On a real device one out-of-memory trial is owed: only it proves where memory ends.
  if (slower && (view.ran_out || options_.modelled)) return {};
  if (bracket.fits < arm.guess && !view.ran_out && !options_.modelled) {
    return Try(arm, LimitTarget(values(), arm.guess),
               Text("over ", arm.guess, ", the largest expected to fit, to see where memory ends"));
  }
  if (bracket.fits < arm.guess) {
    return Try(arm, Affordable(arm, bracket, view, arm.guess),
               "the largest that is estimated to fit");
  }
  if (bracket.fits == arm.guess) {
    return Try(arm, Affordable(arm, bracket, view, LimitTarget(values(), bracket.fits)),
               Text("1.25 × ", bracket.fits, " or the next above, to prove the limit"));
  }
  int64_t twice = std::max(above, AtMost(values(), 2 * bracket.fits));
  return Try(arm, Affordable(arm, bracket, view, twice),
             Text("twice ", bracket.fits, ", which fits"));
}

// Something failed: close in from both sides until the limit is known to a quarter.
Decision BracketDesigner::Narrow(const Arm& arm, const Bracket& bracket, const View& view) const {
  int64_t fails = *bracket.fails;
  if (bracket.fits == 0) {
    int64_t half = AtMost(values(), fails / 2);
    if (half == 0) half = AtMost(values(), fails - 1);
    return Try(arm, half, Text("half of ", fails, ", which does not fit"));
  }
  int64_t target = LimitTarget(values(), bracket.fits);
  if (target == 0 || fails <= target) return {};
  int64_t middle = AtMost(values(), (bracket.fits + fails) / 2);
  if (bracket.fits < arm.guess && arm.guess < fails) {
    // Close to the expected limit the proof, which runs out of memory early, is the cheaper trial.
    middle = target > arm.guess ? target : arm.guess;
  }
  if (middle <= bracket.fits) middle = Above(values(), bracket.fits);
  return Try(arm, Affordable(arm, bracket, view, middle),
             Text("between ", bracket.fits, ", which fits, and ", fails, ", which does not"));
}

// The micro-batch, or the largest between it and what fits that the time left allows, or 0. One
// that is estimated not to fit ends early and is always affordable.
int64_t BracketDesigner::Affordable(const Arm& arm, const Bracket& bracket, const View& view,
                                    int64_t micro_batch) const {
  bool ends_early = arm.guess > 0 && micro_batch > arm.guess;
  bool starts = bracket.fits == 0;
  double tokens = starts ? arm.tokens_per_second * view.correction : bracket.last_tokens_per_second;
  double seconds_each = view.seconds_share / std::max(tokens, 1e-9);
  if (options_.budget_seconds <= 0 || seconds_each <= 0 || ends_early) return micro_batch;
  double most = (starts ? kStartShare : kCloseShare) * view.seconds_left / seconds_each;
  if (double(micro_batch) <= most) return micro_batch;
  int64_t affordable = AtMost(values(), static_cast<int64_t>(most));
  return affordable > bracket.fits ? affordable : 0;
}

// One refining axis at a time around the best, the most promising neighbour first.
Decision BracketDesigner::Refine(const View& view) {
  if (view.best == nullptr) return {};
  int refinements = 0;
  for (const std::string& key : view.keys) {
    refinements += std::none_of(arms_.begin(), arms_.end(),
                                [&](const Arm& arm) { return arm.key == key; });
  }
  if (refinements >= kMostRefinements) return {};
  const Estimate* base = estimates_.Find(view.best->config);
  double gain = options_.modelled ? kModelledGain : kRefinementGain;
  double expected = base ? gain * base->tokens_per_second : 0;
  Decision decision;
  for (const TrainConfig& neighbour : space_.Refinements(view.best->config)) {
    Arm arm = MakeArm(space_, neighbour, estimates_, memory_scale_);
    Bracket bracket = FindBracket(space_, arm, view.history, view.keys);
    int64_t m = std::max(arm.guess, view.best->config.micro_batch);
    if (bracket.trials > 0 || (bracket.fails && m >= *bracket.fails)) continue;
    if (base && (arm.guess < m || arm.tokens_per_second < expected)) continue;
    expected = arm.tokens_per_second;
    decision = Try(arm, m, "the best with one detail changed");
    if (!base) return decision;
  }
  return decision;
}

Decision BracketDesigner::FindLimit(const View& view) {
  if (view.best == nullptr) return {};
  return Probe(MakeArm(space_, view.best->config, estimates_, memory_scale_), view, /*final=*/true);
}

std::string BracketDesigner::WhyOver(const View& view) {
  if (view.best == nullptr) return "nothing fits";
  Arm arm = MakeArm(space_, view.best->config, estimates_, memory_scale_);
  Bracket bracket = FindBracket(space_, arm, view.history, view.keys);
  int64_t m = view.best->config.micro_batch;
  int64_t target = LimitTarget(values(), m);
  bool proven = target == 0 || bracket.fits > m || (bracket.fails && *bracket.fails <= target);
  if (proven) return "no config is expected to be faster, and the best is at its limit";
  return Text("no other trial is expected to end within the ", view.seconds_left,
              " s left of the budget");
}

}  // namespace

std::unique_ptr<Designer> MakeBracket(Space space, Estimator estimator,
                                      const DesignerOptions& options) {
  return std::make_unique<BracketDesigner>(std::move(space), std::move(estimator), options);
}

}  // namespace hbmtune::tuner

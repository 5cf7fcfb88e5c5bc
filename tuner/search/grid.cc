#include <set>

#include "tuner/search/arm.h"
#include "tuner/search/bracket.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

bool RuledOut(const History& history, const TrainConfig& config) {
  for (const Trial& trial : history) {
    if (RanOutOfMemory(trial) && RulesOut(trial.config, config)) return true;
  }
  return false;
}

std::set<std::string> Tried(const History& history) {
  std::set<std::string> tried;
  for (const Trial& trial : history) tried.insert(ToJson(trial.config).dump());
  return tried;
}

// An estimate this far over the ceiling is believed without a trial.
constexpr double kHopeless = 1.5;

bool Hopeless(const Estimate* estimate, bool modelled) {
  if (estimate == nullptr || estimate->fits) return false;
  return modelled || double(estimate->peak_used_bytes) > kHopeless * estimate->ceiling_bytes;
}

class Grid : public Designer {
 public:
  Grid(Space space, Estimator estimator, const DesignerOptions& options)
      : space_(std::move(space)),
        deadline_(options),
        estimates_(std::move(estimator), [this] { return deadline_.Passed(); }),
        options_(options) {}

  Decision Next(const History& history) override {
    std::string stop = MustStop(history, options_);
    if (!stop.empty()) return {std::nullopt, stop};
    deadline_.Note(history);
    std::set<std::string> tried = Tried(history);
    Decision decision{std::nullopt, "every config of the space has been tried or ruled out"};
    int64_t index = 0;
    space_.ForEach([&](const TrainConfig& config) {
      if (index++ < done_) return true;
      if (estimates_.stopped()) {
        decision.why = MustStop(history, options_);
        return false;
      }
      if (!tried.contains(ToJson(config).dump()) && !RuledOut(history, config) &&
          !Hopeless(estimates_.Find(config), options_.modelled)) {
        decision = {config, Text("next of the grid, number ", index)};
        return false;
      }
      done_ = index;  // tried or ruled out once is so for good
      return true;
    });
    return decision;
  }

 private:
  Space space_;
  Deadline deadline_;
  EstimateCache estimates_;
  DesignerOptions options_;
  int64_t done_ = 0;
};

class Random : public Designer {
 public:
  Random(Space space, Estimator estimator, const DesignerOptions& options)
      : space_(std::move(space)),
        deadline_(options),
        estimates_(std::move(estimator), [this] { return deadline_.Passed(); }),
        options_(options) {}

  Decision Next(const History& history) override {
    std::string stop = MustStop(history, options_);
    if (!stop.empty()) return {std::nullopt, stop};
    deadline_.Note(history);
    std::set<std::string> tried = Tried(history);
    std::mt19937_64 random(options_.seed);
    // The draws of one seed are always the same; those of earlier trials are passed over.
    constexpr int kDraws = 10'000;
    for (int draw = 1; draw <= kDraws; ++draw) {
      if (estimates_.stopped()) return {std::nullopt, MustStop(history, options_)};
      std::optional<TrainConfig> config = space_.Sample(random);
      if (config && !tried.contains(ToJson(*config).dump()) && !RuledOut(history, *config) &&
          !Hopeless(estimates_.Find(*config), options_.modelled)) {
        return {config, Text("draw ", draw, " of seed ", options_.seed)};
      }
    }
    return {std::nullopt, "no untried config turned up"};
  }

 private:
  Space space_;
  Deadline deadline_;
  EstimateCache estimates_;
  DesignerOptions options_;
};

}  // namespace

std::unique_ptr<Designer> MakeGrid(Space space, Estimator estimator,
                                   const DesignerOptions& options) {
  return std::make_unique<Grid>(std::move(space), std::move(estimator), options);
}

std::unique_ptr<Designer> MakeRandom(Space space, Estimator estimator,
                                     const DesignerOptions& options) {
  return std::make_unique<Random>(std::move(space), std::move(estimator), options);
}

}  // namespace hbmtune::tuner

#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/core/result.h"
#include "tuner/search/designer.h"
#include "tuner/search/history.h"

namespace hbmtune::tuner {

// A device with a memory and a speed that a test chooses: peak = fixed + micro_batch × per_sample,
// less where layers are recomputed, and tokens a second that saturate with the micro-batch.
struct FakeDevice {
  int64_t capacity_bytes = 1'000'000;
  int64_t fixed_bytes = 100'000;
  int64_t sample_bytes = 40'000;
  double recompute_memory = 0.25;  // of sample_bytes
  double recompute_speed = 0.75;   // of the tokens a second
  double offload_speed = 0.9;
  double peak_tokens = 10'000;
  double half_batch = 2;        // micro-batch of half the peak speed
  double slower_over = 1e9;     // from this micro-batch on the step slows down

  int64_t Peak(const TrainConfig& c) const {
    double sample = double(sample_bytes);
    if (Recomputes(c)) sample *= recompute_memory;
    double fixed = double(fixed_bytes);
    if (c.offload.optimizer != OptimizerOffload::kNone) fixed *= 0.5;
    return static_cast<int64_t>(fixed + sample * double(c.micro_batch));
  }

  double Tokens(const TrainConfig& c) const {
    double m = double(c.micro_batch);
    double tokens = peak_tokens * m / (m + half_batch);
    if (Recomputes(c)) tokens *= recompute_speed;
    if (c.offload.optimizer != OptimizerOffload::kNone) tokens *= offload_speed;
    if (m > slower_over) tokens *= slower_over / m;
    return tokens;
  }

  Estimate Estimated(const TrainConfig& c) const {
    Estimate estimate;
    estimate.peak_used_bytes = Peak(c);
    estimate.capacity_bytes = estimate.ceiling_bytes = capacity_bytes;
    estimate.fits = estimate.peak_used_bytes <= capacity_bytes;
    estimate.tokens_per_second = Tokens(c);
    estimate.step_seconds = 256.0 * double(c.micro_batch) / estimate.tokens_per_second;
    estimate.breakdown = {{Category::kActivations, Peak(c) - fixed_bytes},
                          {Category::kWeights, fixed_bytes}};
    return estimate;
  }

  Measurement Measured(const TrainConfig& c) const {
    Measurement measurement;
    measurement.outcome = Peak(c) <= capacity_bytes ? Outcome::kOk : Outcome::kOutOfMemory;
    measurement.peak_used_bytes = std::min(Peak(c), capacity_bytes);
    if (measurement.outcome == Outcome::kOk) {
      measurement.tokens_per_second = Tokens(c);
      measurement.step_seconds = 256.0 * double(c.micro_batch) / Tokens(c);
      measurement.steps = 3;
    }
    return measurement;
  }

  // Process start, warm-up and three steps; running out of memory ends the first step.
  double Seconds(const TrainConfig& c) const {
    double step = 256.0 * double(c.micro_batch) / Tokens(c);
    return Peak(c) <= capacity_bytes ? 0.3 + 4 * step : 0.3 + step / 2;
  }

  Estimator AsEstimator() const {
    FakeDevice copy = *this;
    return [copy](const TrainConfig& c) -> absl::StatusOr<Estimate> { return copy.Estimated(c); };
  }

 private:
  static bool Recomputes(const TrainConfig& c) {
    return c.checkpoint.every > 0 || c.checkpoint.attention > 0 || c.checkpoint.mlp > 0;
  }
};

// One trial as a prober would run it: measured on `truth`, with `believed`'s estimate beside it.
inline Trial RunTrial(const TrainConfig& config, const FakeDevice& truth,
                      const FakeDevice* believed) {
  Trial trial;
  trial.config = config;
  if (believed != nullptr) trial.estimate = believed->Estimated(config);
  trial.measurement = truth.Measured(config);
  trial.seconds = truth.Seconds(config);
  return trial;
}

// Runs the designer until it stops.
inline History RunStudy(Designer& designer, const FakeDevice& truth, const FakeDevice* believed) {
  History history;
  while (history.size() < 1000) {
    Decision decision = designer.Next(history);
    if (!decision.config) break;
    history.push_back(RunTrial(*decision.config, truth, believed));
  }
  return history;
}

}  // namespace hbmtune::tuner

#include <gtest/gtest.h>

#include "kernels/core/units.h"
#include "kernels/step/trial.h"
#include "tests/tuner/predict/small_job.h"
#include "tuner/predict/predict.h"

// On the host a dry run and a real run walk the same Program through the same allocator.
namespace hbmtune {
namespace {

void ExpectSamePeaks(const Workload& workload, const TrainConfig& config) {
  step::TrialRequest request;
  request.workload = workload;
  request.config = config;
  request.memory_bytes = kGiB;
  request.max_steps = 2;
  Measurement measured = step::RunTrial(request);
  ASSERT_EQ(measured.outcome, Outcome::kOk) << measured.message;
  auto estimate =
      Predict(workload, config, *device::FindProfile("host"), {.capacity_bytes = kGiB});
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(estimate->peak_allocated_bytes, measured.peak_allocated_bytes);
  EXPECT_EQ(estimate->peak_reserved_bytes, measured.peak_reserved_bytes);
  EXPECT_EQ(estimate->peak_phase, measured.peak_phase);
  ASSERT_EQ(estimate->breakdown.size(), measured.breakdown.size());
  for (size_t i = 0; i < measured.breakdown.size(); ++i) {
    EXPECT_EQ(estimate->breakdown[i].category, measured.breakdown[i].category);
    EXPECT_EQ(estimate->breakdown[i].bytes, measured.breakdown[i].bytes);
  }
}

TEST(PredictOnHost, PeaksAreThoseOfTheTrialToTheByte) {
  constexpr int64_t micro_batch = 3;
  for (int64_t every : {0, 2}) {
    for (int64_t grad_accum : {1, 3}) {
      TrainConfig config;
      config.micro_batch = micro_batch;
      config.grad_accum = grad_accum;
      config.checkpoint.every = every;
      SCOPED_TRACE(testing::Message() << "micro-batch " << micro_batch << ", checkpoint every "
                                      << every << ", accumulation " << grad_accum);
      ExpectSamePeaks(SmallJob(), config);
    }
  }
}

// A trial's nine drawn steps and the longest are what the estimate plays. It then goes on until the
// reserved memory stands; in these it stands at once.
TEST(PredictOnHost, PlaysThePaddedStepsOfATrial) {
  for (SequenceOrder order : {SequenceOrder::kLongestLate, SequenceOrder::kLongestFirst}) {
    for (int64_t micro_batch : {1, 4}) {
      step::TrialRequest request;
      request.workload = SmallJob();
      request.workload.seq_len = 512;
      request.workload.sequences = {SequenceLayout::kPadded, 8, 0.3, order, 16};
      request.config.micro_batch = micro_batch;
      request.memory_bytes = kGiB;
      request.warmup_steps = 8;  // nine steps, whatever shapes come
      request.max_steps = 1;
      const Measurement measured = step::RunTrial(request);
      ASSERT_EQ(measured.outcome, Outcome::kOk) << measured.message;
      auto estimate = Predict(request.workload, request.config, *device::FindProfile("host"),
                              {.capacity_bytes = kGiB});
      ASSERT_TRUE(estimate.ok()) << estimate.status();
      EXPECT_EQ(estimate->peak_allocated_bytes, measured.peak_allocated_bytes);
      EXPECT_EQ(estimate->peak_reserved_bytes, measured.peak_reserved_bytes);
    }
  }
}

TEST(PredictOnHost, AlsoInBf16WithMastersAndALora) {
  TrainConfig config;
  config.param_dtype = config.compute_dtype = Dtype::kBf16;
  config.master_weights = true;
  ExpectSamePeaks(SmallJob(), config);
  Workload lora = SmallJob();
  lora.lora.rank = 8;
  ExpectSamePeaks(lora, TrainConfig{});
}

// A run with promotion lies between none and all promoted.
TEST(PredictOnHost, BoundsWhatPromotionTakes) {
  TrainConfig config;
  config.param_dtype = config.compute_dtype = config.optimizer_state_dtype = Dtype::kBf16;
  Workload workload = SmallJob();
  workload.model.vocab = 8000;  // so that state is most of the memory
  for (const double threshold : {1e-30, 1e30}) {
    config.promotion.grad_norm_threshold = threshold;
    step::TrialRequest request;
    request.workload = workload;
    request.config = config;
    request.memory_bytes = kGiB;
    request.max_steps = 2;
    const Measurement measured = step::RunTrial(request);
    ASSERT_EQ(measured.outcome, Outcome::kOk) << measured.message;
    const auto estimate =
        Predict(workload, config, *device::FindProfile("host"), {.capacity_bytes = kGiB});
    ASSERT_TRUE(estimate.ok()) << estimate.status();
    const double figure = static_cast<double>(estimate->peak_reserved_bytes);
    EXPECT_LT(estimate->interval.low_ratio, -0.2);
    if (threshold > 1) {
      EXPECT_EQ(measured.peak_allocated_bytes, estimate->peak_allocated_bytes);
    } else {
      EXPECT_NEAR(static_cast<double>(measured.peak_reserved_bytes),
                  figure * (1 + estimate->interval.low_ratio), 1);
    }
  }
}

TEST(PredictOnHost, SaysWhatARealTrialRunsOutOf) {
  TrainConfig config;
  config.micro_batch = 64;
  const Ceiling ceiling{.capacity_bytes = 8 * kMiB};
  auto estimate = Predict(SmallJob(), config, *device::FindProfile("host"), ceiling);
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_FALSE(estimate->fits);
  step::TrialRequest request;
  request.workload = SmallJob();
  request.config = config;
  request.memory_bytes = 8 * kMiB;
  EXPECT_EQ(step::RunTrial(request).outcome, Outcome::kOutOfMemory);
}

}  // namespace
}  // namespace hbmtune

#include "tuner/predict/predict.h"

#include <array>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/units.h"
#include "kernels/model/presets.h"

namespace hbmtune {
namespace {

using ::testing::HasSubstr;

ModelSpec Llama13b() {
  ModelSpec model;
  model.name = "llama2-13b";
  model.hidden = 5120, model.layers = 40, model.heads = model.kv_heads = 40;
  model.head_dim = 128, model.ffn = 13824, model.vocab = 32000, model.max_positions = 4096;
  return model;
}

Workload Job(Framework framework, int64_t ranks = 1) {
  Workload workload;
  workload.model = Llama13b();
  workload.framework = framework;
  workload.world_size = ranks;
  return workload;
}

// DeepSpeed's bf16, ZeRO 2, optimizer on the CPU, every layer checkpointed.
TrainConfig Offloaded() {
  TrainConfig config;
  config.param_dtype = config.compute_dtype = Dtype::kBf16;
  config.master_weights = true;
  config.checkpoint.every = 1;
  config.offload.optimizer = OptimizerOffload::kCpuAdam;
  config.zero.stage = 2;
  return config;
}

Estimate On(std::string_view device, const Workload& workload, const TrainConfig& config,
            const Ceiling& ceiling = {}) {
  auto estimate = Predict(workload, config, *device::FindProfile(device), ceiling);
  EXPECT_TRUE(estimate.ok()) << estimate.status();
  return estimate.value_or(Estimate{});
}

int64_t Of(const Estimate& estimate, Category category) {
  for (const CategoryBytes& owner : estimate.breakdown) {
    if (owner.category == category) return owner.bytes;
  }
  return 0;
}

TEST(Predict, FitsLlama13bOnAnMi210OnlyWithTheOptimizerOnTheCpu) {
  Workload job = Job(Framework::kHfSdpaDeepspeed);
  Estimate offloaded = On("mi210", job, Offloaded());
  EXPECT_TRUE(offloaded.fits);
  EXPECT_GT(offloaded.host_bytes, 12 * int64_t{13'015'864'320});
  TrainConfig on_device = Offloaded();
  on_device.offload.optimizer = OptimizerOffload::kNone;
  Estimate refused = On("mi210", job, on_device);
  EXPECT_FALSE(refused.fits);
  EXPECT_THAT(refused.limited_by, HasSubstr("memory (optimizer"));
}

// Pure bf16 weights, every layer checkpointed: what a framework alone can do.
TrainConfig PureBf16() {
  TrainConfig config;
  config.param_dtype = config.compute_dtype = config.optimizer_state_dtype = Dtype::kBf16;
  config.checkpoint.every = 1;
  return config;
}

TEST(Predict, CountsWeightsOfLlama13bToTheSlackOfSegments) {
  Estimate estimate = On("mi300x", Job(Framework::kHfSdpa), PureBf16());
  // What the allocator does not split off a segment, at most 1 MiB a tensor, counts as its own.
  const int64_t weights = 2 * int64_t{13'015'864'320};
  EXPECT_GE(Of(estimate, Category::kWeights), weights);
  EXPECT_LT(Of(estimate, Category::kWeights), weights + 363 * kMiB);
  EXPECT_TRUE(estimate.fits);
}

TEST(Predict, BreakdownSumsToThePeak) {
  for (Framework framework : {Framework::kFused, Framework::kHfEager, Framework::kHfSdpaDdp,
                              Framework::kHfSdpaDeepspeed}) {
    const bool alone = !UsesDeepspeed(framework);
    Estimate estimate =
        On("mi210", Job(framework, alone ? 1 : 2), alone ? PureBf16() : Offloaded());
    int64_t sum = 0;
    for (const CategoryBytes& owner : estimate.breakdown) sum += owner.bytes;
    EXPECT_EQ(sum, estimate.peak_allocated_bytes) << Name(framework);
    EXPECT_GE(estimate.peak_reserved_bytes, estimate.peak_allocated_bytes);
    EXPECT_GE(estimate.peak_used_bytes, estimate.peak_reserved_bytes);
  }
}

TEST(Predict, MoreNeverTakesLess) {
  Workload job = Job(Framework::kHfSdpaDeepspeed, 4);
  TrainConfig config = Offloaded();
  int64_t last = 0;
  for (int64_t micro_batch : {1, 2, 4, 8}) {
    config.micro_batch = micro_batch;
    Estimate estimate = On("mi210", job, config);
    EXPECT_GE(estimate.peak_allocated_bytes, last);
    last = estimate.peak_allocated_bytes;
  }
  TrainConfig whole = config;
  whole.checkpoint.every = 0;
  EXPECT_GT(On("mi210", job, whole).peak_allocated_bytes, last);
  EXPECT_LT(On("mi210", job, whole).step_seconds, On("mi210", job, config).step_seconds);
}

TEST(Predict, ShardingOverRanksSavesMemory) {
  TrainConfig config = Offloaded();
  config.offload.optimizer = OptimizerOffload::kNone;
  int64_t last = std::numeric_limits<int64_t>::max();
  for (int64_t stage : {0, 1, 2, 3}) {
    config.zero.stage = stage;
    config.zero.reduce_bucket_size = 1'000'000;
    int64_t peak = On("mi210", Job(Framework::kHfSdpaDeepspeed, 8), config).peak_allocated_bytes;
    EXPECT_LT(peak, last) << "stage " << stage;
    last = peak;
  }
}

// Stage 3 records gathered weights on other streams: when they come back is a matter of time.
TEST(Predict, Stage3GivesABracket) {
  TrainConfig config = Offloaded();
  config.offload.optimizer = OptimizerOffload::kNone;
  config.zero.reduce_bucket_size = 1'000'000;
  config.zero.stage = 2;
  const Estimate two = On("mi210", Job(Framework::kHfSdpaDeepspeed, 8), config);
  config.zero.stage = 3;
  config.zero.overlap_comm = true;
  config.zero.max_reuse_distance = config.zero.prefetch_bucket_size = 0;
  const Estimate three = On("mi210", Job(Framework::kHfSdpaDeepspeed, 8), config);
  EXPECT_GT(three.interval.high_ratio, two.interval.high_ratio);
}

TEST(Predict, ASavedModelIsGatheredModuleByModule) {
  Workload job = Job(Framework::kHfSdpaDeepspeed, 8);
  job.model.layers = 2;
  TrainConfig config = Offloaded();
  config.zero.stage = 3;
  const Estimate kept = On("mi210", job, config);
  config.zero.gather_16bit_weights_on_model_save = true;
  const Estimate saved = On("mi210", job, config);
  EXPECT_EQ(kept.save_peak_bytes, 0);
  const int64_t weights = 2 * (2 * 32000 * 5120 + 2 * (4 * 5120 * 5120 + 3 * 5120 * 13824));
  const int64_t largest = 2 * 32000 * 5120, bucket = 2 * config.zero.reduce_bucket_size;
  const int64_t workspaces = 2 * device::FindProfile("mi210")->workspace_bytes();
  EXPECT_NEAR(saved.save_peak_bytes, weights / 8 + bucket + workspaces + largest, 4 * kMiB);
  EXPECT_EQ(saved.peak_allocated_bytes, kept.peak_allocated_bytes);  // the backward pass's
  EXPECT_EQ(saved.step_seconds, kept.step_seconds);
  // Rank 0 has them all, beside what it keeps but for the new share that a step has.
  EXPECT_NEAR(saved.host_bytes - kept.host_bytes, weights - weights / 8, 4 * kMiB);

  // Little else: an embedding of 1 GiB and short rows.
  job.model.vocab = 1 << 20, job.model.hidden = 512, job.model.heads = job.model.kv_heads = 4;
  job.model.ffn = 512, job.seq_len = 1, config.zero.reduce_bucket_size = 1000;
  config.zero.prefetch_bucket_size = config.zero.max_reuse_distance = 0;
  EXPECT_GT(On("mi210", job, config).save_peak_bytes, kGiB);
}

TEST(Predict, AccumulationTakesTimeAndNoMoreMemoryThanTwoMicroSteps) {
  Workload job = Job(Framework::kHfSdpa);
  TrainConfig config = PureBf16();
  std::array<Estimate, 3> estimates;
  for (size_t i = 0; i < 3; ++i) {
    config.grad_accum = std::array{1, 2, 10}[i];
    estimates[i] = On("mi300x", job, config);
  }
  EXPECT_GE(estimates[1].peak_allocated_bytes, estimates[0].peak_allocated_bytes);
  EXPECT_EQ(estimates[2].peak_allocated_bytes, estimates[1].peak_allocated_bytes);
  const double micro_step = estimates[1].step_seconds - estimates[0].step_seconds;
  EXPECT_NEAR(estimates[2].step_seconds, estimates[1].step_seconds + 8 * micro_step,
              0.05 * estimates[2].step_seconds);
}

TEST(Predict, AMillionMicroStepsAreAMultipleOfOne) {
  Workload job = Job(Framework::kHfSdpa);
  TrainConfig config = PureBf16();
  std::array<Estimate, 3> estimates;
  for (size_t i = 0; i < 3; ++i) {
    config.grad_accum = std::array{8, 9, 1'000'000}[i];
    estimates[i] = On("mi300x", job, config);
  }
  EXPECT_EQ(estimates[2].peak_allocated_bytes, estimates[0].peak_allocated_bytes);
  EXPECT_EQ(estimates[2].peak_reserved_bytes, estimates[0].peak_reserved_bytes);
  const double micro_step = estimates[1].step_seconds - estimates[0].step_seconds;
  const double expected = estimates[0].step_seconds + (1'000'000 - 8) * micro_step;
  EXPECT_NEAR(estimates[2].step_seconds, expected, 0.001 * expected);
}

TEST(Predict, CheckpointingSavesMemoryAndCostsTime) {
  Workload job = Job(Framework::kHfSdpa);
  TrainConfig config = PureBf16();
  config.micro_batch = 4;
  Estimate with = On("mi300x", job, config);
  config.checkpoint.every = 0;
  Estimate without = On("mi300x", job, config);
  EXPECT_LT(with.peak_allocated_bytes, without.peak_allocated_bytes);
  EXPECT_GT(with.step_seconds, 1.2 * without.step_seconds);
  EXPECT_LT(with.step_seconds, 1.5 * without.step_seconds);
}

TEST(Predict, KeepsTwoGibibytesOrFivePercentFreeExceptOnTheHost) {
  auto mi210 = *device::FindProfile("mi210");
  auto mi300x = *device::FindProfile("mi300x");
  auto host = *device::FindProfile("host");
  int64_t capacity = static_cast<int64_t>(mi300x.capacity_bytes.value);
  EXPECT_EQ(CeilingBytes({}, mi300x), capacity - capacity / 20);
  EXPECT_EQ(CeilingBytes({.capacity_bytes = 8 * kGiB}, mi210), 6 * kGiB);
  EXPECT_EQ(CeilingBytes({.capacity_bytes = kGiB}, host), kGiB);
  EXPECT_EQ(CeilingBytes({.device_bytes = 7}, mi210), 7);
}

TEST(Predict, AHostCeilingCountsToo) {
  Workload job = Job(Framework::kHfSdpaDeepspeed);
  Estimate estimate = On("mi210", job, Offloaded(), {.host_bytes = 64 * kGiB});
  EXPECT_FALSE(estimate.fits);
  EXPECT_EQ(estimate.limited_by, "host memory");
}

TEST(Predict, RefusesWhatMakesNoSense) {
  Workload job = Job(Framework::kHfSdpa);
  job.seq_len = 8192;
  auto estimate = Predict(job, {}, *device::FindProfile("mi210"), {});
  EXPECT_EQ(estimate.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(estimate.status().message()),
              HasSubstr("8192 is longer than the model's 4096 positions"));
  auto host = Predict(Job(Framework::kFused), {}, *device::FindProfile("host"), {});
  EXPECT_EQ(host.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Predict, WhatDoesNotFitByFarIsAnEstimateToo) {
  Workload job = Job(Framework::kHfEager);
  TrainConfig config;
  job.seq_len = 4096;
  config.micro_batch = 64;
  const Estimate estimate = On("mi355x", job, config);  // scores of 4 TiB in fp32 and bf16
  EXPECT_FALSE(estimate.fits);
  EXPECT_GT(estimate.peak_reserved_bytes, 8192 * kGiB);
  config.micro_batch = 1 << 20;
  EXPECT_EQ(Predict(job, config, *device::FindProfile("mi355x"), {}).status().code(),
            absl::StatusCode::kOutOfRange);
}

// A figure to remember: blocks of other lengths in the cache do not serve the longest row.
TEST(Predict, WhenTheLongestRowComesDecidesWhatIsReserved) {
  Workload workload;
  workload.model = *FindPreset("llama2-7b");
  workload.lora.rank = 16;
  TrainConfig config;
  config.micro_batch = 4;
  config.param_dtype = config.compute_dtype = Dtype::kBf16;
  auto reserved = [&](SequenceLayout layout, SequenceOrder order) {
    workload.sequences = {layout, 1, 0.4, order, 64};
    auto estimate = Predict(workload, config, *device::FindProfile("mi300x"), {});
    EXPECT_TRUE(estimate.ok()) << estimate.status();
    EXPECT_LE(estimate->interval.low_ratio, 0);
    return static_cast<double>(estimate->peak_reserved_bytes);
  };
  const double alike = reserved(SequenceLayout::kFixed, SequenceOrder::kLongestLate);
  EXPECT_GT(reserved(SequenceLayout::kPadded, SequenceOrder::kLongestLate), 1.1 * alike);
  EXPECT_NEAR(reserved(SequenceLayout::kPadded, SequenceOrder::kLongestFirst), alike, 0.02 * alike);
}

}  // namespace
}  // namespace hbmtune

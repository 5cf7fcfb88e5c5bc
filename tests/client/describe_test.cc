#include "client/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hbmtune::client {
namespace {

using ::testing::ElementsAre;

TrainConfig DeepspeedConfig() {
  TrainConfig config;
  config.micro_batch = 2;
  config.grad_accum = 16;
  config.checkpoint.every = 1;
  config.param_dtype = config.compute_dtype = Dtype::kBf16;
  config.master_weights = true;
  config.zero.stage = 2;
  config.zero.reduce_bucket_size = 200'000'000;
  config.offload.optimizer = OptimizerOffload::kCpuAdam;
  return config;
}

TEST(Describe, AConfigReadsAsPeopleWouldSayIt) {
  EXPECT_THAT(DescribeConfig(DeepspeedConfig(), Framework::kHfSdpaDeepspeed),
              ElementsAre("micro-batch 2 × accumulation 16", "checkpoint every layer", "bf16-amp",
                          "ZeRO 2, optimizer on the CPU, buckets 2e8"));
}

TEST(Describe, DefaultsArePassedOver) {
  EXPECT_THAT(DescribeConfig(TrainConfig{}, Framework::kFused),
              ElementsAre("micro-batch 1 × accumulation 1", "no checkpointing", "fp32"));
}

TEST(Describe, BlocksAndAllocatorHaveTheirWords) {
  TrainConfig config;
  config.checkpoint.attention = 1;
  config.checkpoint.mlp = 3;
  config.checkpoint.keep_inputs = false;
  config.allocator.max_split_size_mb = 128;
  config.optimizer_loop = OptimizerLoop::kForeach;
  EXPECT_THAT(
      DescribeConfig(config, Framework::kFused),
      ElementsAre("micro-batch 1 × accumulation 1",
                  "checkpoint every attention block and one MLP block in 3, inputs recomputed",
                  "fp32", "optimizer-loop foreach, allocator.max-split-size-mb 128"));
}

TEST(Describe, DtypesWithoutAShorthandAreSpeltOut) {
  TrainConfig config;
  config.param_dtype = config.compute_dtype = Dtype::kBf16;
  config.optimizer_state_dtype = Dtype::kF32;
  EXPECT_EQ(DescribeConfig(config, Framework::kFused)[2],
            "bf16 weights, bf16 compute, fp32 optimizer state");
}

TEST(Describe, AWorkloadOnALine) {
  Workload workload;
  workload.model.name = "llama2-13b";
  workload.framework = Framework::kHfSdpaDeepspeed;
  workload.world_size = 8;
  EXPECT_EQ(DescribeWorkload(workload),
            "llama2-13b · full fine-tune · adamw · seq 2048 · 8 GPUs · hf-sdpa+deepspeed");
  workload.lora.rank = 16;
  workload.world_size = 1;
  EXPECT_EQ(DescribeWorkload(workload),
            "llama2-13b · LoRA rank 16 · adamw · seq 2048 · hf-sdpa+deepspeed");
  workload.sequences.layout = SequenceLayout::kPadded;
  EXPECT_EQ(DescribeWorkload(workload),
            "llama2-13b · LoRA rank 16 · adamw · seq up to 2048 padded, longest-late · "
            "hf-sdpa+deepspeed");
}

TEST(Describe, EvidenceHasItsIntervalWhenThereIsOne) {
  EXPECT_EQ(DescribeEvidence(Evidence::kMeasured, {}), "MEASURED");
  EXPECT_EQ(DescribeEvidence(Evidence::kPredicted, {-0.03, 0.021}), "PREDICTED (peak −3 %…+2 %)");
}

TEST(Describe, TheBreakdownIsLargestFirstAndWhatLiesOutsideLast) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_EQ(DescribeBreakdown({{Category::kWeights, kGiB},
                               {Category::kContext, 2 * kGiB},
                               {Category::kLogits, 3 * kGiB},
                               {Category::kStaging, 1 << 20},
                               {Category::kLibraries, kGiB}}),
            "logits 3.00 GiB · weights 1.00 GiB · outside the allocator 3.00 GiB");
}

}  // namespace
}  // namespace hbmtune::client

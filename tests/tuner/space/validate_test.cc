#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/field_path.h"
#include "kernels/core/precision.h"
#include "tests/tuner/workloads.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {
namespace {

using ::testing::HasSubstr;

// Why the framework's base with these fields changed is refused, or "".
std::string ErrorOf(const Workload& workload,
                    std::initializer_list<std::pair<const char*, Json>> fields) {
  TrainConfig config = BaseConfig(workload.framework, {});
  for (const auto& [path, value] : fields) SetField(config, path, value);
  return std::string(Validate(workload, config).message());
}

std::string ErrorOf(Framework framework,
                    std::initializer_list<std::pair<const char*, Json>> fields) {
  return ErrorOf(MakeWorkload(framework), fields);
}

TEST(Validate, AcceptsTheBaseOfEveryFramework) {
  for (Framework framework : kAllFrameworks) EXPECT_EQ(ErrorOf(framework, {}), "");
}

TEST(Validate, NamesWhatTheFrameworkLacks) {
  EXPECT_THAT(ErrorOf(Framework::kHfSdpa, {{"zero.stage", 2}}),
              HasSubstr("zero.stage 2: hf-sdpa has no zero.stage; leave it out, or use"));
  EXPECT_THAT(ErrorOf(Framework::kHfSdpa, {{"checkpoint.mlp", 6}}), HasSubstr("checkpoint.mlp 6"));
  EXPECT_THAT(ErrorOf(Framework::kHfSdpa, {{"offload.optimizer", "cpu_adam"}}),
              HasSubstr("offload.optimizer cpu_adam"));
  EXPECT_THAT(ErrorOf(Framework::kHfSdpa, {{"loss_scale.window", 7}}), HasSubstr("loss_scale"));
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"checkpoint.reentrant", true}}),
              HasSubstr("checkpoint.reentrant true"));
  EXPECT_THAT(ErrorOf(Framework::kHfSdpaDeepspeed, {{"optimizer_loop", "foreach"}}),
              HasSubstr("optimizer_loop foreach"));
}

TEST(Validate, NamesWhatAFieldNeeds) {
  EXPECT_THAT(ErrorOf(MakeWorkload(Framework::kFused, "tiny-llama", 2),
                      {{"zero.reduce_bucket_size", 1000}}),
              HasSubstr("zero.reduce_bucket_size 1000 needs zero.stage 1 or higher"));
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"loss_scale.window", 1000}}),
              HasSubstr("needs compute_dtype fp16"));
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"promotion.grad_norm_threshold", 1e-4}}),
              HasSubstr("needs 16-bit param_dtype"));
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"param_dtype", "bf16"}, {"compute_dtype", "bf16"},
                                          {"offload.optimizer", "stream"},
                                          {"promotion.grad_norm_threshold", 1e-4}}),
              HasSubstr("and offload.optimizer none"));
}

TEST(Validate, RejectsSenselessNumbers) {
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"micro_batch", 0}}), HasSubstr("micro_batch 0"));
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"grad_accum", -1}}), HasSubstr("grad_accum -1"));
  EXPECT_THAT(ErrorOf(MakeWorkload(Framework::kFused, "tiny-llama", 2),
                      {{"zero.stage", 2}, {"zero.reduce_bucket_size", 0}}),
              HasSubstr("zero.reduce_bucket_size 0"));
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"checkpoint.every", 9}}),
              HasSubstr("checkpoint.every 9 must lie between 0 and 8"));
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"allocator.max_split_size_mb", 20}}),
              HasSubstr("over 20"));
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"allocator.roundup_power2_divisions", 3}}),
              HasSubstr("power of two"));
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"allocator.garbage_collection_threshold", 1.5}}),
              HasSubstr("under 1"));
}

TEST(Validate, RejectsBatchesThatDoNotMultiplyOut) {
  Workload workload = MakeWorkload(Framework::kFused, "tiny-llama", 2, 24);
  EXPECT_THAT(ErrorOf(workload, {{"micro_batch", 5}, {"grad_accum", 2}}),
              HasSubstr("is 20 sequences, not the global_batch of 24"));
  EXPECT_EQ(ErrorOf(workload, {{"micro_batch", 3}, {"grad_accum", 4}}), "");
}

TEST(Validate, KnowsThePrecisionsOfEachFramework) {
  EXPECT_THAT(ErrorOf(Framework::kHfSdpa, {{"master_weights", true}}),
              HasSubstr("fp32 weights are their own masters"));
  EXPECT_THAT(ErrorOf(Framework::kHfSdpaDeepspeed, {{"param_dtype", "fp32"}}),
              HasSubstr("use precision bf16-amp or fp16-amp"));
  EXPECT_THAT(ErrorOf(Framework::kHfSdpa, {{"param_dtype", "fp16"}}), HasSubstr("fp16"));
  for (Framework framework : {Framework::kFused, Framework::kHfSdpa}) {
    for (std::string_view name : EnumNames<Precision>::kNames) {
      TrainConfig config = BaseConfig(framework, {});
      ApplyPrecision(*ParseEnum<Precision>(name), framework, config);
      EXPECT_TRUE(Validate(MakeWorkload(framework), config).ok()) << name;
    }
  }
}

TEST(Validate, KnowsTheOffloadOfEachFramework) {
  EXPECT_THAT(ErrorOf(Framework::kHfSdpaDeepspeed,
                      {{"offload.optimizer", "stream"}, {"zero.stage", 2}}),
              HasSubstr("use cpu_adam"));
  EXPECT_THAT(ErrorOf(Framework::kHfSdpaDeepspeed, {{"offload.optimizer", "cpu_adam"}}),
              HasSubstr("needs zero.stage 1"));
  EXPECT_EQ(ErrorOf(Framework::kHfSdpaDeepspeed,
                    {{"offload.optimizer", "cpu_adam"}, {"zero.stage", 2}}),
            "");
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"offload.activations", "checkpoints"}}),
              HasSubstr("fused offloads layers"));
  EXPECT_EQ(ErrorOf(Framework::kHfSdpa,
                    {{"offload.activations", "checkpoints"}, {"checkpoint.every", 1}}),
            "");
  EXPECT_THAT(ErrorOf(Framework::kHfSdpa,
                      {{"offload.activations", "layers"}, {"checkpoint.every", 1}}),
              HasSubstr("Transformers offloads checkpoints"));
  EXPECT_THAT(ErrorOf(Framework::kFused, {{"zero.gather_16bit_weights_on_model_save", true}}),
              HasSubstr("+deepspeed"));
  Workload sgd = MakeWorkload(Framework::kFused);
  sgd.optimizer = Optimizer::kSgd;
  EXPECT_THAT(ErrorOf(sgd, {{"offload.optimizer", "cpu_adam"}}), HasSubstr("moments"));
}

TEST(Validate, KnowsTheAttentionOfEachFramework) {
  EXPECT_THAT(ErrorOf(Framework::kHfEager, {{"attention", "tiled"}}), HasSubstr("hf-eager"));
  EXPECT_THAT(ErrorOf(Framework::kHfSdpa, {{"attention", "materialised"}}), HasSubstr("tiled"));
  EXPECT_EQ(ErrorOf(Framework::kFused, {{"attention", "materialised"}}), "");
}

TEST(ValidateWorkload, NamesWhatIsWrong) {
  auto error = [](auto change) {
    Workload workload = MakeWorkload(Framework::kFused);
    change(workload);
    return std::string(ValidateWorkload(workload).message());
  };
  EXPECT_EQ(error([](Workload&) {}), "");
  EXPECT_THAT(error([](Workload& w) { w.seq_len = 4096; }),
              HasSubstr("seq_len 4096 is longer than the 2048 positions of tiny-llama"));
  EXPECT_THAT(error([](Workload& w) { w.seq_len = 0; }), HasSubstr("seq_len 0"));
  EXPECT_THAT(error([](Workload& w) { w.world_size = 0; }), HasSubstr("world_size 0"));
  EXPECT_THAT(error([](Workload& w) { w.global_batch = -8; }), HasSubstr("global_batch -8"));
  EXPECT_THAT(error([](Workload& w) { w.global_batch = 99'999'999'999'999; }),
              HasSubstr("global_batch 99999999999999 is too large: at most 1048576 sequences"));
  EXPECT_EQ(error([](Workload& w) { w.world_size = 4, w.global_batch = 4 << 20; }), "");
  EXPECT_THAT(error([](Workload& w) { w.world_size = 8, w.global_batch = 12; }),
              HasSubstr("not divisible by world_size 8: 8 and 16 are"));
  EXPECT_THAT(error([](Workload& w) { w.world_size = 8, w.global_batch = 7; }),
              HasSubstr("not divisible by world_size 8: 8 is"));
  EXPECT_THAT(error([](Workload& w) {
                w.optimizer = Optimizer::kAdamw8bit, w.framework = Framework::kHfSdpa;
              }),
              HasSubstr("optimizer adamw-8bit is not modelled for hf-sdpa: adamw is"));
  EXPECT_THAT(error([](Workload& w) { w.world_size = 2, w.framework = Framework::kHfSdpa; }),
              HasSubstr("use hf-sdpa+ddp"));
  EXPECT_THAT(error([](Workload& w) { w.lora.rank = -1; }), HasSubstr("lora.rank -1"));
  EXPECT_THAT(error([](Workload& w) { w.lora.rank = 8, w.lora.targets = "mlp"; }),
              HasSubstr("lora.targets 'mlp'"));
  EXPECT_THAT(error([](Workload& w) { w.model.kv_heads = 3; }), HasSubstr("do not divide"));
  EXPECT_THAT(error([](Workload& w) { w.sequences.mean_ratio = 0; }), HasSubstr("mean_ratio 0"));
  auto layout = [&](SequenceLayout layout, Framework framework) {
    return error([=](Workload& w) { w.sequences.layout = layout, w.framework = framework; });
  };
  EXPECT_THAT(layout(SequenceLayout::kPadded, Framework::kHfSdpa),
              HasSubstr("sequences.layout padded is not modelled for hf-sdpa: fixed is, and "
                        "framework fused models it"));
  EXPECT_THAT(layout(SequenceLayout::kPacked, Framework::kHfEagerDeepspeed),
              HasSubstr("sequences.layout packed is not modelled for hf-eager+deepspeed"));
  EXPECT_EQ(layout(SequenceLayout::kPacked, Framework::kFused), "");
  EXPECT_THAT(error([](Workload& w) { w.grad_clip = -1; }), HasSubstr("grad_clip -1"));
}

}  // namespace
}  // namespace hbmtune::tuner

#include "tuner/export/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernels/core/json.h"
#include "kernels/core/precision.h"
#include "tests/tuner/workloads.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Text(const Workload& workload, const TrainConfig& config, ExportFormat format) {
  absl::StatusOr<std::string> text = Export(workload, config, format);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

// The practitioners' final config, as far as DeepSpeed goes.
TrainConfig Practitioners(const Workload& workload) {
  TrainConfig config = BaseConfig(workload.framework, {});
  ApplyPrecision(Precision::kFp16Amp, workload.framework, config);
  config.micro_batch = 2;
  config.grad_accum = 4;
  config.checkpoint.every = 1;
  config.zero.stage = 2;
  config.zero.reduce_bucket_size = 200'000'000;
  config.zero.allgather_bucket_size = 200'000'000;
  config.offload.optimizer = OptimizerOffload::kCpuAdam;
  return config;
}

TEST(Export, WritesDeepspeedsKeys) {
  Workload workload = MakeWorkload(Framework::kHfSdpaDeepspeed, "llama2-13b", 2);
  Json json = Json::parse(Text(workload, Practitioners(workload), ExportFormat::kDeepspeed));
  EXPECT_EQ(json["train_micro_batch_size_per_gpu"], 2);
  EXPECT_EQ(json["gradient_accumulation_steps"], 4);
  EXPECT_EQ(json["train_batch_size"], 16);
  EXPECT_EQ(json["fp16"], Json::parse(R"({"enabled": true, "loss_scale": 0,
      "initial_scale_power": 16, "loss_scale_window": 1000, "hysteresis": 2,
      "min_loss_scale": 1.0})"));
  EXPECT_FALSE(json.contains("bf16"));
  EXPECT_EQ(json["zero_optimization"], Json::parse(R"({"stage": 2, "overlap_comm": false,
      "contiguous_gradients": true, "reduce_scatter": true, "reduce_bucket_size": 200000000,
      "allgather_bucket_size": 200000000,
      "offload_optimizer": {"device": "cpu", "pin_memory": true}})"));
  EXPECT_EQ(json["optimizer"]["type"], "AdamW");
}

TEST(Export, WritesHowAStage3ModelIsSavedAndWhereCheckpointsAre) {
  Workload workload = MakeWorkload(Framework::kHfSdpaDeepspeed, "llama2-13b", 2);
  TrainConfig config = Practitioners(workload);
  config.zero = {.stage = 3};
  config.zero.gather_16bit_weights_on_model_save = true;
  config.offload.activations = ActivationOffload::kCheckpoints;
  const std::string deepspeed = Text(workload, config, ExportFormat::kDeepspeed);
  const std::string hf = Text(workload, config, ExportFormat::kHf);
  EXPECT_EQ(Json::parse(deepspeed)["zero_optimization"]
                                  ["stage3_gather_16bit_weights_on_model_save"],
            true);
  EXPECT_FALSE(Json::parse(deepspeed).contains("activation_checkpointing"));
  EXPECT_EQ(Json::parse(hf)["gradient_checkpointing_kwargs"]["offload"], true);
}

TEST(Export, WritesTrainingArguments) {
  Workload workload = MakeWorkload(Framework::kHfSdpaDeepspeed, "llama2-13b", 2);
  Json json = Json::parse(Text(workload, Practitioners(workload), ExportFormat::kHf));
  EXPECT_EQ(json["per_device_train_batch_size"], 2);
  EXPECT_EQ(json["fp16"], true);
  EXPECT_EQ(json["gradient_checkpointing"], true);
  EXPECT_EQ(json["deepspeed"], "ds_config.json");
  EXPECT_EQ(json["optim"], "adamw_torch_fused");
}

TEST(Export, WritesAccelerateWithThePrecisionInOnePlace) {
  Workload deepspeed = MakeWorkload(Framework::kHfSdpaDeepspeed, "llama2-13b", 2);
  std::string text = Text(deepspeed, Practitioners(deepspeed), ExportFormat::kAccelerate);
  EXPECT_THAT(text, HasSubstr("distributed_type: DEEPSPEED"));
  EXPECT_THAT(text, HasSubstr("  deepspeed_config_file: ds_config.json"));
  EXPECT_THAT(text, Not(HasSubstr("mixed_precision")));
  Workload ddp = MakeWorkload(Framework::kHfSdpaDdp, "llama2-13b", 4);
  text = Text(ddp, BaseConfig(ddp.framework, {}), ExportFormat::kAccelerate);
  EXPECT_THAT(text, HasSubstr("distributed_type: MULTI_GPU"));
  EXPECT_THAT(text, HasSubstr("mixed_precision: 'bf16'"));
  EXPECT_THAT(text, HasSubstr("num_processes: 4"));
}

TEST(Export, WritesOneRealVariable) {
  Workload workload = MakeWorkload(Framework::kHfSdpa);
  TrainConfig config = BaseConfig(workload.framework, {});
  EXPECT_THAT(Text(workload, config, ExportFormat::kEnv), Not(HasSubstr("export ")));
  config.allocator.roundup_power2_divisions = 4;
  config.allocator.garbage_collection_threshold = 0.8;
  config.allocator.expandable_segments = true;
  EXPECT_THAT(Text(workload, config, ExportFormat::kEnv),
              HasSubstr("export PYTORCH_HIP_ALLOC_CONF=roundup_power2_divisions:4,"
                        "garbage_collection_threshold:0.8,expandable_segments:True\n"));
}

TEST(Export, SaysWhichFilesBelongTogether) {
  Workload workload = MakeWorkload(Framework::kHfSdpa);
  TrainConfig config = BaseConfig(workload.framework, {});
  EXPECT_THAT(AlsoNeeded(workload, config, ExportFormat::kHf), IsEmpty());
  ApplyPrecision(Precision::kBf16, workload.framework, config);
  config.allocator.max_split_size_mb = 128;
  EXPECT_THAT(AlsoNeeded(workload, config, ExportFormat::kHf),
              ElementsAre(ExportFormat::kEnv, ExportFormat::kModel));
  Workload deepspeed = MakeWorkload(Framework::kHfSdpaDeepspeed, "llama2-13b", 2);
  EXPECT_THAT(AlsoNeeded(deepspeed, Practitioners(deepspeed), ExportFormat::kDeepspeed),
              ElementsAre(ExportFormat::kHf));
}

TEST(Export, WritesFusedForTransformersWhereTheyCanDoTheSame) {
  Workload workload = MakeWorkload(Framework::kFused, "llama2-7b");
  TrainConfig config = BaseConfig(workload.framework, {});
  config.checkpoint.every = 1;
  EXPECT_EQ(Json::parse(Text(workload, config, ExportFormat::kHf))["gradient_checkpointing"],
            true);
  config.checkpoint.every = 4;
  absl::Status status = Export(workload, config, ExportFormat::kHf).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("checkpoint.every 4"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("use --format hbmtune"));
  EXPECT_EQ(Json::parse(Text(workload, config, ExportFormat::kHbmtune))["framework"], "fused");
}

TEST(Export, RefusesDeepspeedWithoutIt) {
  Workload workload = MakeWorkload(Framework::kHfSdpa);
  absl::Status status =
      Export(workload, BaseConfig(workload.framework, {}), ExportFormat::kDeepspeed).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("uses no DeepSpeed"));
}

TEST(Export, RefusesWhatIsIllegal) {
  Workload workload = MakeWorkload(Framework::kHfSdpa);
  TrainConfig config = BaseConfig(workload.framework, {});
  config.micro_batch = 0;
  EXPECT_FALSE(Export(workload, config, ExportFormat::kHf).ok());
}

std::string ImportError(ExportFormat format, const std::string& text,
                        Framework framework = Framework::kHfSdpaDeepspeed) {
  TrainConfig config = BaseConfig(framework, {});
  const Json before = ToJson(config);
  absl::Status status = Import(framework, format, text, config);
  EXPECT_EQ(ToJson(config), before);  // a bad file changes nothing
  return std::string(status.message());
}

TEST(Import, NamesWhatIsWrong) {
  EXPECT_THAT(ImportError(ExportFormat::kDeepspeed, "{"), HasSubstr("not JSON"));
  EXPECT_THAT(ImportError(ExportFormat::kDeepspeed, "[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(ImportError(ExportFormat::kDeepspeed, "{}"), HasSubstr("bf16.enabled"));
  EXPECT_THAT(ImportError(ExportFormat::kDeepspeed,
                          R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": "x"}})"),
              HasSubstr("stage: must be a whole number"));
  EXPECT_THAT(ImportError(ExportFormat::kModel, R"({"dtype": "int4"})"), HasSubstr("'int4'"));
  EXPECT_THAT(ImportError(ExportFormat::kAccelerate, "debug: false\n"),
              HasSubstr("no distributed_type"));
  EXPECT_THAT(ImportError(ExportFormat::kAccelerate, "distributed_type: NO\n"),
              HasSubstr("hf-sdpa+deepspeed"));
  EXPECT_THAT(ImportError(ExportFormat::kHbmtune, "{}"), HasSubstr("no train_config"));
}

TEST(Import, RefusesVariablesThatNothingReads) {
  EXPECT_THAT(ImportError(ExportFormat::kEnv, "export HSA_AMD_SDK_BUILD_MEMORY=1\n"),
              HasSubstr("HSA_AMD_SDK_BUILD_MEMORY"));
  EXPECT_THAT(ImportError(ExportFormat::kEnv, "export PYTORCH_HIP_ALLOC_CONF=magic:1\n"),
              HasSubstr("no setting 'magic'"));
  EXPECT_EQ(ImportError(ExportFormat::kEnv, "export HSA_ENABLE_SDMA=1\n"), "");
}

// Fields of peft.LoraConfig in PEFT 0.21.2, by dataclasses.fields of the package itself.
const std::set<std::string> kPeftKeys = {
    "task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path",
    "revision", "inference_mode", "r", "target_modules", "exclude_modules", "lora_alpha",
    "lora_dropout", "fan_in_fan_out", "bias", "use_rslora", "modules_to_save",
    "init_lora_weights", "layers_to_transform", "layers_pattern", "rank_pattern",
    "alpha_pattern", "megatron_config", "megatron_core", "trainable_token_indices",
    "loftq_config", "eva_config", "corda_config", "lora_ga_config", "use_dora", "velora_config",
    "alora_invocation_tokens", "use_qalora", "qalora_group_size", "monteclora_config",
    "layer_replication", "runtime_config", "lora_bias", "target_parameters", "use_bdlora",
    "arrow_config", "kasa_config", "ensure_weight_tying"};

Json LoraPart(const std::string& model, const std::string& targets, Framework framework) {
  Workload workload = MakeWorkload(framework, model);
  workload.lora = {.rank = 8, .alpha = 32, .dropout = 0.05, .targets = targets};
  Json json = Json::parse(Text(workload, BaseConfig(framework, {}), ExportFormat::kHf));
  return json.value("lora_config", Json());
}

TEST(Export, WritesLoraAsPeftTakesIt) {
  for (Framework framework : {Framework::kHfSdpa, Framework::kHfEager}) {
    for (const char* model : {"llama2-7b", "qwen2-7b", "falcon-7b", "gpt2"}) {
      for (const char* targets : {"attention", "all-linear"}) {
        Json part = LoraPart(model, targets, framework);
        ASSERT_TRUE(part.is_object()) << model;
        for (const auto& [key, value] : part.items()) {
          EXPECT_TRUE(kPeftKeys.contains(key)) << key;
        }
        EXPECT_EQ(part["r"], 8);
        EXPECT_EQ(part["lora_alpha"].dump(), "32");  // PEFT's is a whole number
        EXPECT_EQ(part["lora_dropout"], 0.05);
        EXPECT_EQ(part["bias"], "none");
        EXPECT_EQ(part["task_type"], "CAUSAL_LM");
        EXPECT_EQ(part["fan_in_fan_out"], std::string(model) == "gpt2");
      }
    }
  }
}

TEST(Export, NamesLorasTargetsByModule) {
  auto targets = [](const char* model, const char* which) {
    return LoraPart(model, which, Framework::kHfSdpa)["target_modules"];
  };
  EXPECT_EQ(targets("llama2-7b", "attention"), (Json{"q_proj", "v_proj"}));
  EXPECT_EQ(targets("llama2-7b", "all-linear"),
            (Json{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}));
  EXPECT_EQ(targets("gpt2", "attention"), Json::array({"c_attn"}));
  EXPECT_EQ(targets("gpt2", "all-linear"), (Json{"c_attn", "c_proj", "c_fc"}));
  EXPECT_EQ(targets("falcon-7b", "all-linear"),
            (Json{"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}));
}

TEST(Export, WritesNoLoraPartForAFullFineTune) {
  Workload workload = MakeWorkload(Framework::kHfSdpa);
  Json json =
      Json::parse(Text(workload, BaseConfig(workload.framework, {}), ExportFormat::kHf));
  EXPECT_FALSE(json.contains("lora_config"));
}

}  // namespace
}  // namespace hbmtune::tuner

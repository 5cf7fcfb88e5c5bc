#include <cmath>

#include "tuner/export/formats.h"

// Keys and defaults of DeepSpeed 0.19 (deepspeed/runtime/zero/config.py). Every key that is tuned
// is written, its default too, so that another version's default changes nothing.
namespace hbmtune::tuner {
namespace {

struct BucketKey {
  const char* key;
  int64_t ZeroConfig::*field;
};
constexpr BucketKey kStageThreeKeys[] = {
    {"stage3_prefetch_bucket_size", &ZeroConfig::prefetch_bucket_size},
    {"stage3_param_persistence_threshold", &ZeroConfig::param_persistence_threshold},
    {"stage3_max_live_parameters", &ZeroConfig::max_live_parameters},
    {"stage3_max_reuse_distance", &ZeroConfig::max_reuse_distance},
    {"sub_group_size", &ZeroConfig::sub_group_size}};
constexpr const char* kGatherOnSave = "stage3_gather_16bit_weights_on_model_save";

Json Zero(const TrainConfig& config) {
  const ZeroConfig& zero = config.zero;
  Json json = {{"stage", zero.stage}};
  if (zero.stage == 0) return json;
  json["overlap_comm"] = zero.overlap_comm;
  json["contiguous_gradients"] = zero.contiguous_gradients;
  json["reduce_scatter"] = zero.reduce_scatter;
  json["reduce_bucket_size"] = zero.reduce_bucket_size;
  json["allgather_bucket_size"] = zero.allgather_bucket_size;
  if (zero.stage == 3) {
    for (const BucketKey& key : kStageThreeKeys) json[key.key] = zero.*key.field;
    json[kGatherOnSave] = zero.gather_16bit_weights_on_model_save;
  }
  if (config.offload.optimizer == OptimizerOffload::kCpuAdam) {
    json["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  }
  return json;
}

Json Fp16(const LossScaleConfig& scale) {
  return {{"enabled", true},
          {"loss_scale", 0},  // 0 is dynamic
          {"initial_scale_power", static_cast<int64_t>(std::log2(scale.initial))},
          {"loss_scale_window", scale.window},
          {"hysteresis", scale.hysteresis},
          {"min_loss_scale", scale.min}};
}

// "auto" takes the value from TrainingArguments.
void WriteOptimizer(Optimizer optimizer, Json& json) {
  if (optimizer == Optimizer::kAdamw8bit) {
    json["zero_allow_untested_optimizer"] = true;  // Transformers builds it from `optim`
    return;
  }
  Json params = {{"lr", "auto"}, {"weight_decay", "auto"}};
  if (optimizer == Optimizer::kAdamw) {
    params["betas"] = "auto";
    params["eps"] = "auto";
  } else {
    json["zero_allow_untested_optimizer"] = true;
  }
  json["optimizer"] = {{"type", optimizer == Optimizer::kSgd ? "SGD" : "AdamW"},
                       {"params", params}};
}

void ReadZero(const Json& json, TrainConfig& config) {
  ZeroConfig& zero = config.zero;
  zero.stage = Take(json, "stage", zero.stage);
  zero.overlap_comm = Take(json, "overlap_comm", zero.overlap_comm);
  zero.contiguous_gradients = Take(json, "contiguous_gradients", zero.contiguous_gradients);
  zero.reduce_scatter = Take(json, "reduce_scatter", zero.reduce_scatter);
  zero.reduce_bucket_size = Take(json, "reduce_bucket_size", zero.reduce_bucket_size);
  zero.allgather_bucket_size = Take(json, "allgather_bucket_size", zero.allgather_bucket_size);
  for (const BucketKey& key : kStageThreeKeys) {
    zero.*key.field = Take(json, key.key, zero.*key.field);
  }
  zero.gather_16bit_weights_on_model_save = Take(json, kGatherOnSave, false);
  Json offload = json.value("offload_optimizer", Json::object());
  bool cpu = Take<std::string>(offload, "device", "none") == "cpu";
  config.offload.optimizer = cpu ? OptimizerOffload::kCpuAdam : OptimizerOffload::kNone;
}

void ReadPrecision(const Json& json, TrainConfig& config) {
  Json fp16 = json.value("fp16", Json::object());
  Json bf16 = json.value("bf16", Json::object());
  if (Take(bf16, "enabled", false)) {
    config.param_dtype = config.compute_dtype = Dtype::kBf16;
    config.loss_scale = LossScaleConfig{};
  } else if (Take(fp16, "enabled", false)) {
    config.param_dtype = config.compute_dtype = Dtype::kF16;
    LossScaleConfig& scale = config.loss_scale;
    scale.initial = std::exp2(Take<int64_t>(fp16, "initial_scale_power", 16));
    scale.window = Take<int64_t>(fp16, "loss_scale_window", 1000);
    scale.hysteresis = Take<int64_t>(fp16, "hysteresis", 2);
    scale.min = Take<double>(fp16, "min_loss_scale", 1);
  } else {
    throw std::invalid_argument("neither bf16.enabled nor fp16.enabled is true");
  }
  config.master_weights = true;
  config.optimizer_state_dtype = Dtype::kF32;
}

}  // namespace

std::string WriteDeepspeed(const Workload& workload, const TrainConfig& config) {
  Json json = {
      {"train_micro_batch_size_per_gpu", config.micro_batch},
      {"gradient_accumulation_steps", config.grad_accum},
      {"train_batch_size", config.micro_batch * config.grad_accum * workload.world_size},
      {"gradient_clipping", workload.grad_clip}};
  if (config.compute_dtype == Dtype::kF16) {
    json["fp16"] = Fp16(config.loss_scale);
  } else {
    json["bf16"] = {{"enabled", true}};
  }
  json["zero_optimization"] = Zero(config);
  WriteOptimizer(workload.optimizer, json);
  return json.dump(2) + "\n";
}

void ReadDeepspeed(const std::string& text, TrainConfig& config) {
  Json json = ParseObject(text);
  config.micro_batch = Take(json, "train_micro_batch_size_per_gpu", config.micro_batch);
  config.grad_accum = Take(json, "gradient_accumulation_steps", config.grad_accum);
  ReadPrecision(json, config);
  ReadZero(json.value("zero_optimization", Json::object()), config);
}

}  // namespace hbmtune::tuner

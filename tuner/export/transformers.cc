#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/model/parameters.h"
#include "tuner/export/formats.h"

// TrainingArguments and from_pretrained of Transformers 4 and 5. `gradient_checkpointing` is the
// name that both know (5 also calls it activation_checkpointing).
namespace hbmtune::tuner {
namespace {

const char* OptimizerName(const Workload& workload, const TrainConfig& config) {
  switch (workload.optimizer) {
    case Optimizer::kAdamw8bit: return "adamw_bnb_8bit";
    case Optimizer::kSgd: return "sgd";
    case Optimizer::kAdamw: break;
  }
  return config.optimizer_loop == OptimizerLoop::kFused ? "adamw_torch_fused" : "adamw_torch";
}

bool Autocast(const TrainConfig& config) { return config.compute_dtype != config.param_dtype; }

const char* TorchName(Dtype dtype) {
  if (dtype == Dtype::kBf16) return "bfloat16";
  return dtype == Dtype::kF16 ? "float16" : "float32";
}

// Names of the modules that get adapters, each once: PEFT takes all that end so.
std::vector<std::string> TargetModules(const Workload& workload) {
  std::vector<std::string> names;
  for (const ParameterEntry& entry : LoraTable(workload.model, workload.lora)) {
    const std::string module = entry.name.substr(0, entry.name.rfind(".lora_"));
    std::string name = module.substr(module.rfind('.') + 1);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// Arguments of peft.LoraConfig (PEFT 0.21), which counts alpha in whole numbers where it is one.
Json LoraConfig(const Workload& workload) {
  const LoraSpec& lora = workload.lora;
  const bool whole = lora.alpha == std::floor(lora.alpha) && lora.alpha < 1e15;
  return {{"task_type", "CAUSAL_LM"},
          {"r", lora.rank},
          {"lora_alpha", whole ? Json(static_cast<int64_t>(lora.alpha)) : Json(lora.alpha)},
          {"lora_dropout", lora.dropout},
          {"target_modules", TargetModules(workload)},
          {"bias", "none"},
          {"fan_in_fan_out", workload.model.architecture == Architecture::kGpt2}};
}

}  // namespace

std::string WriteTrainingArguments(const Workload& workload, const TrainConfig& config) {
  bool deepspeed = UsesDeepspeed(workload.framework);
  bool mixed = Autocast(config) || deepspeed;
  Json json = {{"per_device_train_batch_size", config.micro_batch},
               {"gradient_accumulation_steps", config.grad_accum},
               {"bf16", mixed && config.compute_dtype == Dtype::kBf16},
               {"fp16", mixed && config.compute_dtype == Dtype::kF16},
               {"gradient_checkpointing", config.checkpoint.every == 1}};
  if (config.checkpoint.every == 1) {
    Json& kwargs = json["gradient_checkpointing_kwargs"];
    kwargs["use_reentrant"] = config.checkpoint.reentrant;
    if (config.offload.activations == ActivationOffload::kCheckpoints) kwargs["offload"] = true;
  }
  json["optim"] = OptimizerName(workload, config);
  json["max_grad_norm"] = workload.grad_clip;
  if (config.cleanup_every_steps > 0) {
    json["torch_empty_cache_steps"] = config.cleanup_every_steps;
  }
  if (UsesDdp(workload.framework)) json["ddp_bucket_cap_mb"] = config.ddp.bucket_cap_mb;
  if (deepspeed) json["deepspeed"] = kDeepspeedFile;
  if (workload.lora.rank > 0) json[kLoraPart] = LoraConfig(workload);
  return json.dump(2) + "\n";
}

void ReadTrainingArguments(Framework framework, const std::string& text, TrainConfig& config) {
  Json json = ParseObject(text);
  config.micro_batch = Take(json, "per_device_train_batch_size", config.micro_batch);
  config.grad_accum = Take(json, "gradient_accumulation_steps", config.grad_accum);
  config.checkpoint.every = Take(json, "gradient_checkpointing", false) ? 1 : 0;
  Json kwargs = json.value("gradient_checkpointing_kwargs", Json::object());
  config.checkpoint.reentrant = Take(kwargs, "use_reentrant", false);
  config.offload.activations = Take(kwargs, "offload", false) ? ActivationOffload::kCheckpoints
                                                              : ActivationOffload::kNone;
  bool foreach = Take<std::string>(json, "optim", "") == "adamw_torch";
  config.optimizer_loop = foreach ? OptimizerLoop::kForeach : OptimizerLoop::kFused;
  config.cleanup_every_steps = Take<int64_t>(json, "torch_empty_cache_steps", 0);
  config.ddp.bucket_cap_mb = Take(json, "ddp_bucket_cap_mb", config.ddp.bucket_cap_mb);
  if (UsesDeepspeed(framework)) return;  // its own file says the precision
  bool bf16 = Take(json, "bf16", false);
  bool fp16 = Take(json, "fp16", false);
  // Without autocast products are in the dtype of the weights.
  config.compute_dtype = bf16 ? Dtype::kBf16 : fp16 ? Dtype::kF16 : config.param_dtype;
}

std::string WriteModelArguments(const Workload& workload, const TrainConfig& config) {
  Json json = {{"dtype", TorchName(config.param_dtype)},
               {"attn_implementation", UsesSdpa(workload.framework) ? "sdpa" : "eager"}};
  return json.dump(2) + "\n";
}

void ReadModelArguments(Framework framework, const std::string& text, TrainConfig& config) {
  Json json = ParseObject(text);
  std::string attention = Take<std::string>(json, "attn_implementation", "sdpa");
  if (attention != "sdpa" && attention != "eager") {
    throw std::invalid_argument("attn_implementation '" + attention + "' is not sdpa or eager");
  }
  config.attention = attention == "sdpa" ? AttentionKind::kTiled : AttentionKind::kMaterialised;
  std::string name = Take<std::string>(json, "dtype", "float32");
  if (name != "float32" && name != "bfloat16" && name != "float16") {
    throw std::invalid_argument("dtype '" + name + "' is not float32, bfloat16 or float16");
  }
  if (UsesDeepspeed(framework)) return;  // casts the model as its own file says
  config.master_weights = false;
  if (name == "float32") {
    config.param_dtype = Dtype::kF32;
    config.optimizer_state_dtype = Dtype::kF32;
    return;
  }
  config.param_dtype = name == "bfloat16" ? Dtype::kBf16 : Dtype::kF16;
  config.compute_dtype = config.param_dtype;
  config.optimizer_state_dtype = config.param_dtype;
}

}  // namespace hbmtune::tuner

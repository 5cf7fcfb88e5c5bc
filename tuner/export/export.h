#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/visit.h"
#include "kernels/core/workload.h"

namespace hbmtune {

// The files that a framework reads.
//   deepspeed   ds_config.json, keys of DeepSpeed 0.19
//   hf          JSON of transformers.TrainingArguments; with LoRA, and only then, a part
//               "lora_config" of its own: arguments of peft.LoraConfig, to be taken out first
//   accelerate  YAML that `accelerate launch --config_file` takes
//   env         shell lines with the environment variables that matter; only real ones
//   model       JSON of arguments to AutoModelForCausalLM.from_pretrained: dtype and attention,
//               which TrainingArguments has no keys for
//   hbmtune     this project's own JSON: every field of the TrainConfig
enum class ExportFormat : uint8_t { kDeepspeed, kHf, kAccelerate, kEnv, kModel, kHbmtune };
template <>
struct EnumNames<ExportFormat> {
  static constexpr std::array<std::string_view, 6> kNames = {"deepspeed", "hf",    "accelerate",
                                                             "env",       "model", "hbmtune"};
};

}  // namespace hbmtune

namespace hbmtune::tuner {

// The formats that together carry every tunable of the framework.
std::vector<ExportFormat> NativeFormats(Framework framework);

// The file's text. InvalidArgument, one sentence, if the format cannot express the config: a
// `fused` config goes into the formats of Transformers only as far as Transformers can do the
// same. Fails like Validate for an illegal config.
absl::StatusOr<std::string> Export(const Workload& workload, const TrainConfig& config,
                                   ExportFormat format);

// Of the native formats, those without which `format` does not carry the config: to tell people.
std::vector<ExportFormat> AlsoNeeded(const Workload& workload, const TrainConfig& config,
                                     ExportFormat format);

// Reads what Export wrote over `config`, which starts as BaseConfig(framework): after every
// native format has been imported it equals the exported config. InvalidArgument for text that is
// not in the format.
absl::Status Import(Framework framework, ExportFormat format, const std::string& text,
                    TrainConfig& config);

}  // namespace hbmtune::tuner

#pragma once

#include <absl/status/status.h>

#include <string>

#include "kernels/core/json.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

// One writer and one reader a format. Writers take configs that Validate accepts for a framework
// that has the format; readers throw std::invalid_argument and leave alone what the format lacks.
namespace hbmtune::tuner {

std::string WriteDeepspeed(const Workload& workload, const TrainConfig& config);
void ReadDeepspeed(const std::string& text, TrainConfig& config);

std::string WriteTrainingArguments(const Workload& workload, const TrainConfig& config);
void ReadTrainingArguments(Framework framework, const std::string& text, TrainConfig& config);

std::string WriteModelArguments(const Workload& workload, const TrainConfig& config);
void ReadModelArguments(Framework framework, const std::string& text, TrainConfig& config);

std::string WriteAccelerate(const Workload& workload, const TrainConfig& config);
void ReadAccelerate(Framework framework, const std::string& text, TrainConfig& config);

std::string WriteEnvironment(const TrainConfig& config);
void ReadEnvironment(const std::string& text, TrainConfig& config);

// Name under which the files refer to the DeepSpeed one.
inline constexpr const char* kDeepspeedFile = "ds_config.json";

// Key of the hf file under which LoRA's settings stand, apart from TrainingArguments.
inline constexpr const char* kLoraPart = "lora_config";

// The text as a JSON object; throws std::invalid_argument.
Json ParseObject(const std::string& text);
// json[key] as a T, or `otherwise` if it is absent; throws std::invalid_argument that names it.
template <class T>
T Take(const Json& json, const char* key, T otherwise) {
  auto found = json.find(key);
  if (found != json.end()) FromJson(*found, otherwise, key);
  return otherwise;
}

}  // namespace hbmtune::tuner

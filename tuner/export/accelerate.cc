#include <map>
#include <sstream>

#include "tuner/export/formats.h"
#include "tuner/text.h"

// The cluster config of `accelerate launch --config_file`: who runs, and for plain PyTorch the
// autocast dtype. With a DeepSpeed file Accelerate wants the precision there and only there.
namespace hbmtune::tuner {
namespace {

const char* MixedPrecision(const TrainConfig& config) {
  if (config.compute_dtype == config.param_dtype) return "no";
  return config.compute_dtype == Dtype::kF16 ? "fp16" : "bf16";
}

// "key: value" lines; nested keys keep their own name. Enough for what WriteAccelerate writes.
std::map<std::string, std::string> Lines(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line[begin] == '#') continue;
    size_t colon = line.find(':', begin);
    if (colon == std::string::npos) {
      throw std::invalid_argument("line '" + line + "' is not of the form key: value");
    }
    size_t value = line.find_first_not_of(' ', colon + 1);
    values[line.substr(begin, colon - begin)] =
        value == std::string::npos ? "" : line.substr(value);
  }
  return values;
}

}  // namespace

std::string WriteAccelerate(const Workload& workload, const TrainConfig& config) {
  bool deepspeed = UsesDeepspeed(workload.framework);
  std::string type = deepspeed ? "DEEPSPEED" : workload.world_size > 1 ? "MULTI_GPU" : "NO";
  std::string text = "compute_environment: LOCAL_MACHINE\ndebug: false\n";
  if (deepspeed) {
    text += Text("deepspeed_config:\n  deepspeed_config_file: ", kDeepspeedFile,
                 "\n  zero3_init_flag: ", config.zero.stage == 3 ? "true" : "false", "\n");
  }
  text += Text("distributed_type: ", type, "\nmachine_rank: 0\nmain_training_function: main\n");
  if (!deepspeed) text += Text("mixed_precision: '", MixedPrecision(config), "'\n");
  text += Text("num_machines: 1\nnum_processes: ", workload.world_size,
               "\nrdzv_backend: static\nsame_network: true\nuse_cpu: false\n");
  return text;
}

void ReadAccelerate(Framework framework, const std::string& text, TrainConfig& config) {
  std::map<std::string, std::string> values = Lines(text);
  auto type = values.find("distributed_type");
  if (type == values.end()) {
    throw std::invalid_argument("no distributed_type: this is no Accelerate config");
  }
  if ((type->second == "DEEPSPEED") != UsesDeepspeed(framework)) {
    throw std::invalid_argument("distributed_type " + type->second + " is not what " +
                                std::string(Name(framework)) + " runs under");
  }
  const std::string& precision = values["mixed_precision"];
  if (precision == "'bf16'") config.compute_dtype = Dtype::kBf16;
  if (precision == "'fp16'") config.compute_dtype = Dtype::kF16;
  if (precision == "'no'") config.compute_dtype = config.param_dtype;
}

}  // namespace hbmtune::tuner

#include <algorithm>
#include <sstream>
#include <vector>

#include "tuner/export/formats.h"
#include "tuner/text.h"

// PyTorch on ROCm reads its allocator's settings from PYTORCH_HIP_ALLOC_CONF; of several such
// variables the first that is set wins whole, so exactly one is written.
namespace hbmtune::tuner {
namespace {

constexpr std::string_view kAllocator = "PYTORCH_HIP_ALLOC_CONF";

// Variables that exist in ROCm, PyTorch or RCCL and bear on memory or speed; what is not among
// them is refused, since a variable that nobody reads (HSA_AMD_SDK_BUILD_MEMORY) does no good.
constexpr std::string_view kReal[] = {
    kAllocator, "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "HSA_ENABLE_SDMA",
    "HSA_ENABLE_PEER_SDMA", "HSA_NO_SCRATCH_RECLAIM", "HSA_XNACK", "GPU_MAX_HW_QUEUES",
    "HIP_FORCE_DEV_KERNARG", "NCCL_MIN_NCHANNELS", "PYTORCH_TUNABLEOP_ENABLED",
    "TORCH_BLAS_PREFER_HIPBLASLT", "HIPBLASLT_WORKSPACE_SIZE", "OMP_NUM_THREADS"};

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

void ReadSetting(const std::string& setting, AllocatorTunables& allocator) {
  size_t colon = setting.find(':');
  std::string key = setting.substr(0, colon);
  std::string value = colon == std::string::npos ? "" : setting.substr(colon + 1);
  if (value == "True" || value == "False") value = value == "True" ? "true" : "false";
  Json json = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (!Json{{"roundup_power2_divisions", 0}, {"max_split_size_mb", 0},
            {"garbage_collection_threshold", 0}, {"expandable_segments", 0}}.contains(key)) {
    throw std::invalid_argument(std::string(kAllocator) + " has no setting '" + key + "' here");
  }
  FromJson(Json{{key, json}}, allocator, std::string(kAllocator));
}

}  // namespace

std::string WriteEnvironment(const TrainConfig& config) {
  std::vector<std::string> settings;
  const AllocatorTunables& a = config.allocator;
  if (a.roundup_power2_divisions > 0) {
    settings.push_back(Text("roundup_power2_divisions:", a.roundup_power2_divisions));
  }
  if (a.max_split_size_mb > 0) settings.push_back(Text("max_split_size_mb:", a.max_split_size_mb));
  if (a.garbage_collection_threshold > 0) {
    settings.push_back(Text("garbage_collection_threshold:",
                            Json(a.garbage_collection_threshold).dump()));
  }
  if (a.expandable_segments) settings.push_back("expandable_segments:True");
  if (settings.empty()) return "# The allocator is at PyTorch's defaults: nothing to set.\n";
  std::string text =
      "# Set no other of PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF: the first one wins.\n";
  if (a.garbage_collection_threshold > 0) {
    text += "# The threshold acts only after torch.cuda.set_per_process_memory_fraction().\n";
  }
  text += "export " + std::string(kAllocator) + "=";
  for (size_t i = 0; i < settings.size(); ++i) text += (i > 0 ? "," : "") + settings[i];
  return text + "\n";
}

void ReadEnvironment(const std::string& text, TrainConfig& config) {
  config.allocator = AllocatorTunables{};
  for (std::string line : Split(text, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("export ")) line = line.substr(7);
    size_t equals = line.find('=');
    if (equals == std::string::npos) {
      throw std::invalid_argument("line '" + line + "' sets no variable");
    }
    std::string name = line.substr(0, equals);
    if (std::find(std::begin(kReal), std::end(kReal), name) == std::end(kReal)) {
      throw std::invalid_argument("nothing in ROCm or PyTorch reads the variable " + name);
    }
    if (name != kAllocator) continue;
    for (const std::string& setting : Split(line.substr(equals + 1), ',')) {
      ReadSetting(setting, config.allocator);
    }
  }
}

}  // namespace hbmtune::tuner

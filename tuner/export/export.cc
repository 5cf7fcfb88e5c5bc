#include "tuner/export/export.h"

#include <algorithm>

#include "kernels/core/json.h"
#include "tuner/export/formats.h"
#include "tuner/space/space.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

// Transformers' framework in whose files a `fused` config is written as far as it can be.
Framework NearestFramework(const Workload& workload, ExportFormat format) {
  if (format == ExportFormat::kDeepspeed) return Framework::kHfSdpaDeepspeed;
  return workload.world_size > 1 ? Framework::kHfSdpaDdp : Framework::kHfSdpa;
}

std::string WriteOwn(const Workload& workload, const TrainConfig& config) {
  Json json = {{"framework", Name(workload.framework)}, {"train_config", ToJson(config)}};
  return json.dump(2) + "\n";
}

void ReadOwn(const std::string& text, TrainConfig& config) {
  Json json = ParseObject(text);
  auto found = json.find("train_config");
  if (found == json.end()) throw std::invalid_argument("no train_config in the file");
  FromJson(*found, config, "train_config");
}

bool IsOwn(ExportFormat format) {
  return format == ExportFormat::kHbmtune || format == ExportFormat::kEnv;
}

std::string Write(const Workload& workload, const TrainConfig& config, ExportFormat format) {
  switch (format) {
    case ExportFormat::kDeepspeed: return WriteDeepspeed(workload, config);
    case ExportFormat::kHf: return WriteTrainingArguments(workload, config);
    case ExportFormat::kAccelerate: return WriteAccelerate(workload, config);
    case ExportFormat::kEnv: return WriteEnvironment(config);
    case ExportFormat::kModel: return WriteModelArguments(workload, config);
    case ExportFormat::kHbmtune: return WriteOwn(workload, config);
  }
  return "";
}

// What every native format but `left_out` says together; nothing if it cannot be read back.
bool Complete(const Workload& workload, const TrainConfig& config,
              const std::vector<ExportFormat>& formats) {
  TrainConfig read = BaseConfig(workload.framework, DeviceFacts{});
  for (ExportFormat format : formats) {
    absl::StatusOr<std::string> text = Export(workload, config, format);
    if (!text.ok() || !Import(workload.framework, format, *text, read).ok()) return false;
  }
  return ToJson(read) == ToJson(config);
}

}  // namespace

Json ParseObject(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw std::invalid_argument("not JSON");
  if (!json.is_object()) throw std::invalid_argument("must be a JSON object");
  return json;
}

std::vector<ExportFormat> NativeFormats(Framework framework) {
  using enum ExportFormat;
  if (framework == Framework::kFused) return {kHbmtune};
  if (UsesDeepspeed(framework)) return {kDeepspeed, kHf, kAccelerate, kEnv, kModel};
  return {kHf, kAccelerate, kEnv, kModel};
}

absl::StatusOr<std::string> Export(const Workload& workload, const TrainConfig& config,
                                   ExportFormat format) {
  absl::Status status = Validate(workload, config);
  if (!status.ok()) return status;
  if (IsOwn(format)) return Write(workload, config, format);
  if (workload.framework == Framework::kFused) {
    Workload nearest = workload;
    nearest.framework = NearestFramework(workload, format);
    status = Validate(nearest, config);
    if (!status.ok()) {
      return Illegal("a fused config cannot be written as ", Name(format), " where ",
                     Name(nearest.framework), " cannot do the same (",
                     std::string(status.message()), "); use --format hbmtune");
    }
    return Write(nearest, config, format);
  }
  if (format == ExportFormat::kDeepspeed && !UsesDeepspeed(workload.framework)) {
    return Illegal(Name(workload.framework), " uses no DeepSpeed: export hf, accelerate, env or "
                   "model, or tune for a +deepspeed framework");
  }
  return Write(workload, config, format);
}

std::vector<ExportFormat> AlsoNeeded(const Workload& workload, const TrainConfig& config,
                                     ExportFormat format) {
  std::vector<ExportFormat> needed;
  if (format == ExportFormat::kHbmtune || Complete(workload, config, {format})) return needed;
  const std::vector<ExportFormat> native = NativeFormats(workload.framework);
  for (ExportFormat candidate : native) {
    std::vector<ExportFormat> without = native;
    std::erase(without, candidate);
    if (candidate != format && !Complete(workload, config, without)) needed.push_back(candidate);
  }
  return needed;
}

absl::Status Import(Framework framework, ExportFormat format, const std::string& text,
                    TrainConfig& config) {
  TrainConfig read = config;
  try {
    switch (format) {
      case ExportFormat::kDeepspeed: ReadDeepspeed(text, read); break;
      case ExportFormat::kHf: ReadTrainingArguments(framework, text, read); break;
      case ExportFormat::kAccelerate: ReadAccelerate(framework, text, read); break;
      case ExportFormat::kEnv: ReadEnvironment(text, read); break;
      case ExportFormat::kModel: ReadModelArguments(framework, text, read); break;
      case ExportFormat::kHbmtune: ReadOwn(text, read); break;
    }
  } catch (const std::exception& error) {
    return Illegal("cannot read this as ", Name(format), ": ", error.what());
  }
  config = read;
  return absl::OkStatus();
}

}  // namespace hbmtune::tuner

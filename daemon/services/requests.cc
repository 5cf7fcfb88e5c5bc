#include "daemon/services/requests.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "daemon/base/errors.h"
#include "kernels/core/nearest.h"
#include "kernels/model/model_config.h"
#include "kernels/model/presets.h"
#include "proto/convert.h"
#include "tuner/search/designer.h"
#include "tuner/space/space.h"

namespace hbmtune::daemon {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A config.json is a few KiB.
constexpr size_t kMaxConfigBytes = 1 << 20;

absl::Status CheckEnum(const Message& message, const FieldDescriptor& field,
                       const std::string& path) {
  // An unset field has the number of the default, which is known.
  const int number = message.GetReflection()->GetEnumValue(message, &field);
  if (field.enum_type()->FindValueByNumber(number) != nullptr) return absl::OkStatus();
  return FieldError(path, absl::StrCat(path, ": this daemon knows no value ", number, " of ",
                                       field.enum_type()->name()));
}

absl::Status CheckEnumsBelow(const Message& message, const std::string& prefix) {
  std::vector<const FieldDescriptor*> fields;
  const auto& reflection = *message.GetReflection();
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated()) continue;
    const std::string path = prefix.empty() ? field->name() : prefix + "." + field->name();
    absl::Status status;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      status = CheckEnum(message, *field, path);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      status = CheckEnumsBelow(reflection.GetMessage(message, field), path);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelSpec> PresetModel(const std::string& name) {
  if (auto preset = FindPreset(name)) return *preset;
  const std::vector<std::string> names = PresetNames();
  const bool shown = name.size() <= 64;  // a longer one would not go back in the answer
  std::string sentence =
      shown ? absl::StrCat("there is no preset '", name, "'", DidYouMean(name, names))
            : absl::StrCat("there is no preset with a name of ", name.size(), " bytes");
  for (const std::string& known : names) {
    absl::StrAppend(&sentence, &known == &names.front() ? "; there are " : ", ", known);
  }
  return FieldError("model.preset", sentence);
}

absl::StatusOr<ModelSpec> ParseModel(const v1::ModelSource& source, const ModelSpec& given) {
  if (source.source_case() == v1::ModelSource::kPreset) return PresetModel(source.preset());
  const bool from_json = source.source_case() == v1::ModelSource::kConfigJson;
  if (from_json && source.config_json().size() > kMaxConfigBytes) {
    return FieldError("model.config_json", "a config.json over 1 MiB is refused");
  }
  try {
    if (from_json) return ParseModelConfig(source.config_json(), source.name());
    if (given.hidden == 0) return FieldError("model", "no model: give a preset or a config.json");
    CheckModelSpec(given);
  } catch (const std::invalid_argument& error) {
    return FieldError(from_json ? "model.config_json" : "workload.model", error.what());
  }
  return given;
}

absl::Status CheckBudget(const StudySpec& spec) {
  if (!std::isfinite(spec.budget_seconds) || spec.budget_seconds < 0) {
    return FieldError("budget_seconds", "the budget must be a time, in seconds");
  }
  if (spec.device == "host" && spec.budget_seconds == 0) {
    return FieldError("budget_seconds",
                      "a budget of 0 leaves no time to probe on host: give it some, as 60s");
  }
  if (spec.max_trials < 0) return FieldError("max_trials", "max_trials must not be negative");
  return absl::OkStatus();
}

absl::Status CheckDesigner(const std::string& designer) {
  const std::vector<std::string> names = tuner::DesignerNames();
  if (std::find(names.begin(), names.end(), designer) != names.end()) return absl::OkStatus();
  std::string list;
  for (const std::string& name : names) absl::StrAppend(&list, list.empty() ? "" : ", ", name);
  return FieldError("designer",
                    absl::StrCat("there is no designer '", designer, "'; there are ", list));
}

}  // namespace

absl::Status CheckEnums(const Message& message) { return CheckEnumsBelow(message, ""); }

absl::StatusOr<Workload> ParseWorkload(const v1::Workload& message,
                                       const v1::ModelSource& source) {
  auto workload = FromProto<Workload>(message);
  auto model = ParseModel(source, workload.model);
  if (!model.ok()) return model.status();
  workload.model = *std::move(model);
  if (absl::Status status = tuner::ValidateWorkload(workload); !status.ok()) {
    return FieldError("workload", status);
  }
  return workload;
}

absl::StatusOr<StudySpec> ParseStudySpec(const v1::CreateStudyRequest& request) {
  if (absl::Status status = CheckEnums(request); !status.ok()) return status;
  auto workload = ParseWorkload(request.workload(), request.model());
  if (!workload.ok()) return workload.status();
  StudySpec spec;
  spec.workload = *std::move(workload);
  spec.device = request.device();
  spec.ceiling = FromProto<Ceiling>(request.ceiling());
  spec.budget_seconds = request.budget_seconds();
  spec.max_trials = request.max_trials();
  if (!request.designer().empty()) spec.designer = request.designer();
  spec.seed = request.seed();
  spec.detached = request.detached();
  spec.client_probes = request.client_probes();
  spec.job_id = request.job_id();
  for (const auto& [path, value] : request.pins()) spec.pins[path] = value;
  if (spec.device.empty()) return FieldError("device", "no device: give one, as model:mi210");
  if (absl::Status status = CheckBudget(spec); !status.ok()) return status;
  if (absl::Status status = CheckDesigner(spec.designer); !status.ok()) return status;
  return spec;
}

TrainConfig UncheckedTrainConfig(const v1::TrainConfig& message, const Workload& workload,
                                 bool host) {
  TrainConfig config = tuner::BaseConfig(workload.framework, {host});
  MergeFromProto(message, config);
  const int64_t per_rank = workload.global_batch / workload.world_size;
  if (!message.has_grad_accum() && per_rank > 0 && config.micro_batch > 0 &&
      workload.global_batch % workload.world_size == 0 && per_rank % config.micro_batch == 0) {
    config.grad_accum = per_rank / config.micro_batch;
  }
  return config;
}

absl::StatusOr<TrainConfig> ParseTrainConfig(const v1::TrainConfig& message,
                                             const Workload& workload, bool host) {
  const TrainConfig config = UncheckedTrainConfig(message, workload, host);
  if (absl::Status status = tuner::Validate(workload, config); !status.ok()) {
    return FieldError("train_config", status);
  }
  return config;
}

absl::StatusOr<int64_t> ParseStudy(const std::string& name) {
  if (auto id = ParseStudyName(name)) return *id;
  return FieldError("name", absl::StrCat("'", name, "' names no study: give its number, "
                                         "as in `hbmtune show 7`"));
}

absl::StatusOr<int64_t> ParsePageSize(int32_t page_size) {
  if (page_size < 0) return FieldError("page_size", "page_size must not be negative");
  return page_size == 0 ? 100 : std::min<int64_t>(page_size, 1000);
}

absl::StatusOr<int64_t> ParsePageToken(const std::string& token) {
  int64_t place = 0;
  if (token.empty()) return place;
  if (absl::SimpleAtoi(token, &place) && place > 0) return place;
  return FieldError("page_token", "page_token is not one that this daemon gave out");
}

}  // namespace hbmtune::daemon

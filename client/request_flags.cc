#include "client/request_flags.h"

#include <algorithm>
#include <stdexcept>

#include "client/presets.h"
#include "client/text.h"
#include "kernels/core/field_path.h"
#include "kernels/core/nearest.h"
#include "kernels/core/precision.h"
#include "kernels/core/units.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

template <class T>
absl::Status SetFields(const GivenFields& fields, T& value) {
  try {
    for (const auto& [path, json] : fields) SetField(value, path, json);
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return absl::OkStatus();
}

absl::Status SetSize(const std::string& flag, const std::string& text, const auto& set) {
  if (text.empty()) return absl::OkStatus();
  try {
    const int64_t bytes = ParseSize(text, "a size over 0");
    if (bytes <= 0) throw std::invalid_argument("'" + text + "' is not over 0");
    set(bytes);
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(flag + ": " + error.what());
  }
  return absl::OkStatus();
}

// What the shorthand sets, as fields: those of the dtypes always, others where they change.
GivenFields PrecisionFields(const std::string& name, Framework framework) {
  TrainConfig config;
  ApplyPrecision(ParseEnum<Precision>(name).value(), framework, config);
  GivenFields fields;
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    auto value = GetField(config, path);
    bool dtype = path.ends_with("_dtype") || path == "master_weights";
    if (value && (dtype || value != GetField(TrainConfig{}, path))) fields[path] = *value;
  }
  return fields;
}

CLI::Option* AddPrecision(CLI::App& app, std::string& precision, const std::string& usual) {
  return AddChoice(app, "--precision",
                   {EnumNames<Precision>::kNames.begin(), EnumNames<Precision>::kNames.end()},
                   "shorthand for the dtype fields" + usual, precision);
}

// "1:16" and "0,1,4" with each value in the field's own spelling.
std::string SpellPin(const FlagField& field, const std::string& text) {
  std::string spelt;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find_first_of(",:", begin), text.size());
    std::string part = text.substr(begin, end - begin);
    bool open_end = part.empty() && text.find(':') != std::string::npos;
    if (!open_end) {
      Json value = field.parse(part);
      spelt += value.is_string() ? value.get<std::string>() : value.dump();
    }
    if (end < text.size()) spelt += text[end];
    begin = end + 1;
  }
  return spelt;
}

// The fields of a train config; a dtype that none of its own can have is no choice.
std::vector<FlagField> TrainConfigFields() {
  static const std::vector<std::string> kDtypes = {"fp32", "bf16", "fp16"};
  std::vector<FlagField> fields = FlagFields<TrainConfig>();
  for (FlagField& field : fields) {
    if (!field.path.ends_with("_dtype")) continue;
    field.type = "fp32|bf16|fp16";
    field.parse = [](const std::string& text) -> Json {
      const bool known = std::find(kDtypes.begin(), kDtypes.end(), text) != kDtypes.end();
      if (!known) internal::RejectName(text, kDtypes);
      return text;
    };
  }
  return fields;
}

// The enums of the struct called `prefix`, if all of them have a value of that name, set to it.
std::map<std::string, std::string> StructPins(const std::string& prefix,
                                              const std::string& value) {
  std::map<std::string, std::string> pins;
  for (const FlagField& field : TrainConfigFields()) {
    bool names = field.type.find('|') != std::string::npos && field.type != "true|false";
    if (!names || !field.path.starts_with(prefix + ".")) continue;
    try {
      pins[field.path] = SpellPin(field, value);
    } catch (const std::invalid_argument&) {
      return {};
    }
  }
  return pins;
}

absl::Status AddPin(const std::string& flag, const std::string& path, const std::string& value,
                    std::map<std::string, std::string>& pins) {
  const std::string& pinned = pins.emplace(path, value).first->second;
  if (pinned == value) return absl::OkStatus();
  return absl::InvalidArgumentError(flag + " " + FlagName(path).substr(2) +
                                    " is given twice: as " + pinned + " and as " + value);
}

// "zero.stage=2" and the like, given to `flag`, added to `pins`.
absl::Status TakePin(const std::string& flag, const std::string& text,
                     std::map<std::string, std::string>& pins) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(flag + ": '" + text + "' is not FIELD=VALUE");
  }
  std::string name = text.substr(0, equals);
  std::string path = PathOfFlag(name);
  std::string value = text.substr(equals + 1);
  if (path == "precision") return AddPin(flag, path, value, pins);
  std::vector<std::string> known = {"precision"};
  for (const FlagField& field : TrainConfigFields()) {
    known.push_back(FlagName(field.path).substr(2));
    if (field.path != path) continue;
    try {
      return AddPin(flag, path, SpellPin(field, value), pins);
    } catch (const std::invalid_argument& error) {
      return absl::InvalidArgumentError(flag + " " + known.back() + ": " + error.what());
    }
  }
  auto whole = StructPins(path, value);
  for (const auto& [part, none] : whole) {
    if (absl::Status status = AddPin(flag, part, none, pins); !status.ok()) return status;
  }
  if (!whole.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(flag + ": a train config has no field '" + name + "'" +
                                    DidYouMean(name, known));
}

// Where fields of the shorthand are pinned too, it is spelt out as TrainConfigFlags does, so that
// the same words mean the same in every verb: a field's own pin wins, if the rest goes with it.
void SpellPrecision(Framework framework, std::map<std::string, std::string>& pins) {
  auto shorthand = pins.find("precision");
  if (shorthand == pins.end() || !ParseEnum<Precision>(shorthand->second)) return;
  std::map<std::string, std::string> fields;
  bool shared = false;
  for (const auto& [path, value] : PrecisionFields(shorthand->second, framework)) {
    fields[path] = value.is_string() ? value.get<std::string>() : value.dump();
    shared = shared || pins.contains(path);
  }
  if (!shared) return;
  pins.erase(shorthand);
  pins.merge(fields);
}

// Fields of the lengths' distribution that a layout does not read are refused, not ignored.
absl::Status CheckSequenceFlags(const GivenFields& given, SequenceLayout layout) {
  if (layout == SequenceLayout::kPadded) return absl::OkStatus();
  for (const auto& [path, value] : given) {
    if (!path.starts_with("sequences.") || path == "sequences.layout") continue;
    const bool of_rows = path == "sequences.order" || path == "sequences.pad_multiple";
    if (!of_rows && layout == SequenceLayout::kPacked) continue;
    return absl::InvalidArgumentError(
        FlagName(path) + " says nothing of sequences whose layout is " +
        std::string(Name(layout)) + ": add --sequences.layout padded" +
        (of_rows ? "" : " or packed") + ", or leave it out");
  }
  return absl::OkStatus();
}

// Clears what stands in no path of `fields`.
void Prune(const GivenFields& fields, const std::string& prefix,
           google::protobuf::Message& message) {
  const auto& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> set;
  reflection.ListFields(message, &set);
  for (const auto* field : set) {
    std::string path = prefix + field->name();
    if (field->message_type() == nullptr) {
      if (!fields.contains(path)) reflection.ClearField(&message, field);
      continue;
    }
    auto* inner = reflection.MutableMessage(&message, field);
    Prune(fields, path + ".", *inner);
    if (inner->ByteSizeLong() == 0) reflection.ClearField(&message, field);
  }
}

}  // namespace

CLI::Option* AddDevice(CLI::App& app, const std::string& help, std::string& device) {
  return app.add_option("--device", device, help)
      ->type_name("DEVICE")
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

CLI::Option* AddModel(CLI::App& app, std::string& model) {
  return app
      .add_option("--model", model,
                  "a path to a Hugging Face config.json, or a preset: " +
                      JoinWords(KnownPresets()))
      ->type_name("MODEL");
}

void WorkloadFlags::AddModelTo(CLI::App& app) {
  const std::string group = "what is trained";
  AddModel(app, model)->group(group);
  AddFlags(app, FlagFields<Workload>("model"), group, Defaults::kShown, given);
}

void WorkloadFlags::AddTo(CLI::App& app) {
  AddModelTo(app);
  AddDevice(app, "host, a GPU, or model:NAME (see hbmtune devices) [host]", device)
      ->check([](const std::string& text) {
        return std::string(text.empty() ? "the name is empty; see hbmtune devices" : "");
      })
      ->group("on what");
}

absl::StatusOr<Workload> WorkloadFlags::Apply(Workload base) const {
  if (!model.empty()) base.model = ModelSpec{};
  if (absl::Status status = SetFields(given, base); !status.ok()) return status;
  absl::Status status = CheckSequenceFlags(given, base.sequences.layout);
  if (!status.ok()) return status;
  return base;
}

void CeilingFlags::AddTo(CLI::App& app) {
  const std::string group = "on what";
  app.add_option("--memory", memory,
                 "memory that the device has: the hard budget on host, instead of the "
                 "profile's on a modelled GPU")
      ->type_name("SIZE")
      ->group(group);
  app.add_option("--ceiling", ceiling,
                 "device memory that may be used [all but the larger of 5 % and 2 GiB; all on "
                 "host]")
      ->type_name("SIZE")
      ->group(group);
  app.add_option("--host-memory", host_memory, "host memory that may be used [no limit]")
      ->type_name("SIZE")
      ->group(group);
}

absl::Status CeilingFlags::Apply(v1::Ceiling& sizes) const {
  absl::Status status =
      SetSize("--memory", memory, [&](int64_t bytes) { sizes.set_capacity_bytes(bytes); });
  if (!status.ok()) return status;
  status = SetSize("--ceiling", ceiling, [&](int64_t bytes) { sizes.set_device_bytes(bytes); });
  if (!status.ok()) return status;
  return SetSize("--host-memory", host_memory,
                 [&](int64_t bytes) { sizes.set_host_bytes(bytes); });
}

void TrainConfigFlags::AddTo(CLI::App& app) {
  const std::string group = "train config";
  AddPrecision(app, precision, " [bf16-amp, on host fp32]")->group(group);
  std::vector<FlagField> fields = TrainConfigFields();
  for (FlagField& field : fields) {
    // BaseConfig of the daemon, which knows the device, says so: bf16-amp but on host.
    if (field.path == "compute_dtype") field.default_text = "fp32 on host, bf16 on a GPU";
    if (field.path == "param_dtype") field.default_text = "fp32, bf16 under deepspeed";
    if (field.path == "master_weights") field.default_text = "false, true under deepspeed";
  }
  AddFlags(app, fields, group, Defaults::kShown, given);
}

GivenFields TrainConfigFlags::Fields(Framework framework) const {
  GivenFields fields = given;
  if (!precision.empty()) fields.merge(PrecisionFields(precision, framework));
  return fields;
}

void PinFlags::AddTo(CLI::App& app) {
  app.add_option("--pin", pins,
                 "fixes a tunable, as its own flag below does, or narrows it to a list (0,1,4) or "
                 "a range (1:16); may be repeated. Also precision=NAME and offload=none")
      ->type_name("FIELD=VALUE")
      ->allow_extra_args(false)
      ->take_all()
      ->group("how it is searched");
  const std::string group =
      "train config: what is given here is pinned (or narrowed), the rest is searched";
  AddPrecision(app, precision, "")->group(group);
  std::vector<FlagField> fields = TrainConfigFields();
  for (FlagField& field : fields) {
    field.parse = [whole = field](const std::string& text) -> Json {
      return SpellPin(whole, text);
    };
  }
  AddFlags(app, fields, group, Defaults::kHidden, given);
}

absl::StatusOr<std::map<std::string, std::string>> PinFlags::Pins(Framework framework) const {
  std::map<std::string, std::string> all;
  for (const std::string& pin : pins) {
    if (absl::Status status = TakePin("--pin", pin, all); !status.ok()) return status;
  }
  for (const std::string& values : grid) {
    if (absl::Status status = TakePin("--grid", values, all); !status.ok()) return status;
  }
  GivenFields flags = given;
  if (!precision.empty()) flags["precision"] = precision;
  for (const auto& [path, json] : flags) {
    std::string text = json.get<std::string>();
    std::string pinned = all.emplace(path, text).first->second;
    if (pinned == text) continue;
    return absl::InvalidArgumentError(FlagName(path) + " " + text + " and --pin " +
                                      FlagName(path).substr(2) + "=" + pinned +
                                      " disagree: give one of them");
  }
  SpellPrecision(framework, all);
  return all;
}

absl::Status ApplyFields(const GivenFields& fields, TrainConfig& config) {
  return SetFields(fields, config);
}

void ToSparseProto(const TrainConfig& config, const GivenFields& fields,
                   v1::TrainConfig& message) {
  ToProto(config, message);
  Prune(fields, "", message);
}

absl::StatusOr<double> ParseBudget(const std::string& text) {
  auto seconds = ParseSeconds(text);
  if (!seconds || *seconds <= 0) {
    return absl::InvalidArgumentError("--budget: '" + text +
                                      "' is not a time over 0 (like 60s, 5m or 1h)");
  }
  return *seconds;
}

}  // namespace hbmtune::client

#include "tuner/space/pins.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

#include "kernels/core/field_path.h"
#include "kernels/core/nearest.h"
#include "kernels/core/precision.h"
#include "tuner/space/tunables.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

constexpr const char* kDtypeFields[] = {"param_dtype", "compute_dtype", "optimizer_state_dtype",
                                        "master_weights"};

bool IsDtypeField(const std::string& path) {
  return std::find(std::begin(kDtypeFields), std::end(kDtypeFields), path) !=
         std::end(kDtypeFields);
}

struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool Holds(const Json& value) const {
    return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
  }
};

absl::StatusOr<Range> ParseRange(const std::string& path, const Json& pin) {
  Range range;
  for (const auto& [key, value] : pin.items()) {
    if ((key != "min" && key != "max") || !value.is_number()) {
      return Illegal(path, ": a range is {\"min\": number, \"max\": number}, not ", pin.dump());
    }
    (key == "min" ? range.least : range.most) = value.get<double>();
  }
  if (range.least > range.most) {
    return Illegal(path, ": the range ", range.least, " to ", range.most, " is empty");
  }
  return range;
}

// What the pin allows of `searched`; see PinnedNumbers.
absl::StatusOr<std::vector<Json>> Narrow(const std::string& path, const Json& pin,
                                         const std::vector<Json>& searched) {
  std::vector<Json> values;
  if (pin.is_array()) values.assign(pin.begin(), pin.end());
  if (!pin.is_array() && !pin.is_object()) values = {pin};
  if (pin.is_object()) {
    absl::StatusOr<Range> range = ParseRange(path, pin);
    if (!range.ok()) return range.status();
    for (const Json& value : searched) {
      if (range->Holds(value)) values.push_back(value);
    }
    for (double end : {range->least, range->most}) {
      if (values.empty() && std::abs(end) < 1e15) values.push_back(static_cast<int64_t>(end));
    }
  }
  if (values.empty()) return Illegal(path, ": no value is left");
  return values;
}

absl::Status UnknownPath(const std::string& path) {
  std::vector<std::string> known = FieldPaths<TrainConfig>();
  known.push_back("precision");
  return Illegal("there is no tunable ", path, DidYouMean(path, known));
}

// Every combination of dtypes that the framework can do and the pins allow.
std::vector<Json> LegalDtypes(const Workload& w, const Pins& pins) {
  std::vector<Json> found;
  TrainConfig base = BaseConfig(w.framework, DeviceFacts{});
  for (Dtype param : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    for (Dtype compute : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
      for (Dtype state : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
        for (bool masters : {false, true}) {
          Json value = {{"param_dtype", Name(param)},
                        {"compute_dtype", Name(compute)},
                        {"optimizer_state_dtype", Name(state)},
                        {"master_weights", masters}};
          TrainConfig config = base;
          SetAxis("precision", value, w.framework, config);
          config.grad_accum = std::max<int64_t>(1, w.global_batch / w.world_size);
          bool allowed = CheckValues(w, config).ok();
          for (const char* field : kDtypeFields) {
            auto pin = pins.find(field);
            if (pin == pins.end()) continue;
            const Json& may = pin->second;
            allowed = allowed && (may.is_array()
                                      ? std::find(may.begin(), may.end(), value[field]) != may.end()
                                      : may == value[field]);
          }
          if (allowed) found.push_back(std::move(value));
        }
      }
    }
  }
  return found;
}

// Pins on dtype fields narrow the searched precisions; where none of those is left, they choose
// among all that are legal.
absl::Status PinDtypes(const Workload& w, const Pins& pins, Axis& precision) {
  std::vector<Json> legal = LegalDtypes(w, pins);
  std::vector<Json> left;
  for (const Json& name : precision.values) {
    TrainConfig named;
    SetAxis("precision", name, w.framework, named);
    for (const Json& value : legal) {
      TrainConfig config = named;
      SetAxis("precision", value, w.framework, config);
      if (ToJson(config) == ToJson(named)) left.push_back(name);
    }
  }
  if (left.empty()) left = legal;
  if (left.empty()) {
    std::string text;
    for (const char* field : kDtypeFields) {
      auto pin = pins.find(field);
      if (pin == pins.end()) continue;
      text += Text(text.empty() ? "" : ", ", field, " ", pin->second.dump());
    }
    return Illegal(Name(w.framework), " cannot do ", text,
                                                   ": use --precision");
  }
  precision.values = left;
  return absl::OkStatus();
}

absl::Status PinOne(const Workload& w, const std::string& path, const Json& pin,
                    std::vector<Axis>& axes) {
  auto axis = std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.path == path; });
  TrainConfig scratch;
  if (path != "precision" && !GetField(scratch, path)) return UnknownPath(path);
  std::vector<Json> searched;
  if (axis != axes.end()) searched = axis->values;
  absl::StatusOr<std::vector<Json>> values = Narrow(path, pin, searched);
  if (!values.ok()) return values.status();
  try {
    for (const Json& value : *values) {
      SetAxis(path, value, w.framework, scratch);
      if (absl::Status status = CheckLimits(scratch); !status.ok()) return status;
    }
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (axis != axes.end()) {
    axis->values = *std::move(values);
  } else {
    axes.push_back({path, *std::move(values), false});
  }
  return absl::OkStatus();
}

// A JSON value, or the text itself: `bf16` needs no quotes.
Json ParseValue(std::string_view text) {
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  bool scalar = value.is_number() || value.is_boolean() || value.is_string();
  if (!scalar) return Json(std::string(text));
  // "5e8" is a whole number to people.
  if (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()) &&
      std::abs(value.get<double>()) < 1e15 && text.find('.') == std::string_view::npos) {
    return Json(static_cast<int64_t>(value.get<double>()));
  }
  return value;
}

absl::Status AddPin(const std::string& path, const Json& pin, Pins& pins) {
  auto [earlier, added] = pins.emplace(path, pin);
  if (added || earlier->second == pin) return absl::OkStatus();
  return Illegal(path, " is pinned twice, to ", earlier->second.dump(), " and to ", pin.dump(),
                 ": keep one");
}

}  // namespace

void SetAxis(const std::string& path, const Json& value, Framework framework,
             TrainConfig& config) {
  if (path != "precision") {
    SetField(config, path, value);
    return;
  }
  if (value.is_object()) {
    for (const auto& [field, dtype] : value.items()) SetField(config, field, dtype);
    return;
  }
  Precision precision;
  FromJson(value, precision, path);
  ApplyPrecision(precision, framework, config);
}

absl::StatusOr<std::vector<int64_t>> PinnedNumbers(const Pins& pins, const std::string& path,
                                                   const std::vector<int64_t>& searched) {
  auto pin = pins.find(path);
  if (pin == pins.end()) return searched;
  absl::StatusOr<std::vector<Json>> values =
      Narrow(path, pin->second, std::vector<Json>(searched.begin(), searched.end()));
  if (!values.ok()) return values.status();
  std::vector<int64_t> numbers;
  for (const Json& value : *values) {
    if (!value.is_number_integer() || value.get<int64_t>() < 1) {
      return Illegal(path, " ", value.dump(), " must be a whole number of at least 1");
    }
    numbers.push_back(value.get<int64_t>());
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

absl::Status ApplyPins(const Workload& workload, const Pins& pins, std::vector<Axis>& axes) {
  bool dtypes = false;
  for (const auto& [path, pin] : pins) {
    if (path == "micro_batch" || path == "grad_accum") continue;
    if (IsDtypeField(path)) {
      dtypes = true;
      continue;
    }
    absl::Status status = PinOne(workload, path, pin, axes);
    if (!status.ok()) return status;
  }
  return dtypes ? PinDtypes(workload, pins, axes.front()) : absl::OkStatus();
}

absl::Status ParsePin(const std::string& text, Pins& pins) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return Illegal("'", text, "' is no pin: write field=value, field=a,b,c or field=min:max");
  }
  std::string path = absl::StrReplaceAll(text.substr(0, equals), {{"-", "_"}});
  std::string value = text.substr(equals + 1);
  std::vector<std::string> ends = absl::StrSplit(value, ':');
  if (ends.size() == 2) {
    Json range = Json::object();
    if (!ends[0].empty()) range["min"] = ParseValue(ends[0]);
    if (!ends[1].empty()) range["max"] = ParseValue(ends[1]);
    return AddPin(path, range, pins);
  }
  std::vector<std::string> items = absl::StrSplit(value, ',');
  if (items.size() == 1) return AddPin(path, ParseValue(value), pins);
  Json list = Json::array();
  for (const std::string& item : items) list.push_back(ParseValue(item));
  return AddPin(path, list, pins);
}

}  // namespace hbmtune::tuner

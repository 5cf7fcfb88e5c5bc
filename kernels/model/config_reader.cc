#include "kernels/model/config_reader.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace hbmtune {
namespace {

size_t LineOf(const std::string& text, size_t byte) {
  auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  return 1 + static_cast<size_t>(std::count(text.begin(), end, '\n'));
}

}  // namespace

ConfigReader::ConfigReader(const std::string& json_text, std::string name)
    : name_(std::move(name)) {
  try {
    json_ = nlohmann::json::parse(json_text);
  } catch (const nlohmann::json::parse_error& error) {
    size_t byte = error.byte > 0 ? error.byte - 1 : 0;
    Fail("is not JSON: parsing stopped in line " + std::to_string(LineOf(json_text, byte)));
  }
  if (!json_.is_object()) {
    Fail(std::string("must be a JSON object as in a model's config.json, not ") +
         (json_.is_array() ? "a list" : json_.type_name()));
  }
}

void ConfigReader::Fail(const std::string& why) const {
  throw std::invalid_argument("model config " + (name_.empty() ? "" : "'" + name_ + "' ") + why);
}

const nlohmann::json* ConfigReader::Find(std::initializer_list<const char*> keys,
                                         const char** found) const {
  for (const char* key : keys) {
    auto it = json_.find(key);
    if (it == json_.end() || it->is_null()) continue;
    if (found != nullptr) *found = key;
    return &*it;
  }
  return nullptr;
}

std::optional<int64_t> ConfigReader::FindInteger(std::initializer_list<const char*> keys) const {
  const char* key = nullptr;
  const nlohmann::json* value = Find(keys, &key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) {
    Fail(std::string("has ") + key + " = " + value->dump() + ", which must be a whole number");
  }
  if (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX}) {
    Fail(std::string("has ") + key + " = " + value->dump() + ", which is too large");
  }
  return value->get<int64_t>();
}

int64_t ConfigReader::Integer(std::initializer_list<const char*> keys) const {
  std::optional<int64_t> value = FindInteger(keys);
  if (!value) {
    Fail(std::string("has no `") + *keys.begin() + "`: is it a config.json of a language model?");
  }
  return *value;
}

std::optional<std::string> ConfigReader::FindString(const char* key) const {
  const nlohmann::json* value = Find({key});
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    Fail(std::string("has ") + key + " = " + value->dump() + ", which must be a string");
  }
  return value->get<std::string>();
}

std::optional<std::string> ConfigReader::FirstArchitecture() const {
  const nlohmann::json* list = Find({"architectures"});
  if (list == nullptr) return std::nullopt;
  auto is_string = [](const nlohmann::json& item) { return item.is_string(); };
  if (!list->is_array() || !std::all_of(list->begin(), list->end(), is_string)) {
    Fail("has architectures = " + list->dump() + ", which must be a list of class names");
  }
  if (list->empty()) return std::nullopt;
  return list->front().get<std::string>();
}

double ConfigReader::Number(std::initializer_list<const char*> keys, double otherwise) const {
  const char* key = nullptr;
  const nlohmann::json* value = Find(keys, &key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) {
    Fail(std::string("has ") + key + " = " + value->dump() + ", which must be a number");
  }
  return value->get<double>();
}

bool ConfigReader::Bool(std::initializer_list<const char*> keys, bool otherwise) const {
  const char* key = nullptr;
  const nlohmann::json* value = Find(keys, &key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) {
    Fail(std::string("has ") + key + " = " + value->dump() + ", which must be true or false");
  }
  return value->get<bool>();
}

double ConfigReader::RopeTheta() const {
  constexpr double kTransformersDefault = 10000;
  const nlohmann::json* rope = Find({"rope_parameters"});
  if (rope != nullptr && rope->is_object()) {
    auto theta = rope->find("rope_theta");
    if (theta != rope->end() && !theta->is_number()) {
      Fail("has rope_theta = " + theta->dump() + ", which must be a number");
    }
    if (theta != rope->end()) return theta->get<double>();
  }
  return Number({"rope_theta"}, kTransformersDefault);
}

std::optional<int64_t> ConfigReader::CountInList(const char* key, std::string_view value) const {
  const nlohmann::json* list = Find({key});
  if (list == nullptr || !list->is_array()) return std::nullopt;
  return std::count_if(list->begin(), list->end(), [&](const nlohmann::json& item) {
    return item.is_string() && item.get_ref<const std::string&>() == value;
  });
}

}  // namespace hbmtune

#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/core/visit.h"

// JSON of any visited struct: the same names as its fields, enums by name, absent optionals left
// out. Reading is strict: an unknown key, a wrong type or an unknown enum name throws
// std::invalid_argument with the path of the field and what it may be.
namespace hbmtune {

using Json = nlohmann::ordered_json;

template <class T>
Json ToJson(const T& value);

// Overwrites only what `json` names. `path` is put before names in errors ("train_config.zero").
template <class T>
void FromJson(const Json& json, T& value, const std::string& path = "");

namespace internal {

[[noreturn]] inline void Reject(const std::string& path, const std::string& why) {
  throw std::invalid_argument((path.empty() ? "value" : path) + ": " + why);
}

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

struct JsonWriter {
  Json& json;
  template <class T>
  void operator()(const Field& field, const T& value) {
    if constexpr (IsOptional<T>::value) {
      if (value) json[std::string(field.name)] = ToJson(*value);
    } else {
      json[std::string(field.name)] = ToJson(value);
    }
  }
};

struct JsonReader {
  const Json& json;
  const std::string& path;
  size_t taken = 0;

  template <class T>
  void operator()(const Field& field, T& value) {
    auto found = json.find(field.name);
    if (found == json.end()) return;
    ++taken;
    std::string inner = (path.empty() ? "" : path + ".") + std::string(field.name);
    if constexpr (IsOptional<T>::value) {
      FromJson(*found, value.emplace(), inner);
    } else {
      FromJson(*found, value, inner);
    }
  }
};

struct NameCollector {
  std::vector<std::string> names;
  template <class T>
  void operator()(const Field& field, T&) {
    names.emplace_back(field.name);
  }
};

template <class T>
void RejectUnknownKey(const Json& json, T& value, const std::string& path) {
  NameCollector known;
  T::Visit(value, known);
  for (const auto& [key, unused] : json.items()) {
    if (std::find(known.names.begin(), known.names.end(), key) == known.names.end()) {
      Reject(path.empty() ? key : path + "." + key, "unknown field");
    }
  }
}

template <class T>
void FromJsonObject(const Json& json, T& value, const std::string& path) {
  if (!json.is_object()) Reject(path, "must be an object");
  JsonReader reader{json, path};
  T::Visit(value, reader);
  if (reader.taken != json.size()) RejectUnknownKey(json, value, path);
}

template <class T>
void FromJsonScalar(const Json& json, T& value, const std::string& path) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) Reject(path, "must be true or false");
  } else if constexpr (std::is_integral_v<T>) {
    if (!json.is_number_integer()) Reject(path, "must be a whole number");
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!json.is_number()) Reject(path, "must be a number");
  } else {
    if (!json.is_string()) Reject(path, "must be a string");
  }
  value = json.get<T>();
}

}  // namespace internal

template <class T>
Json ToJson(const T& value) {
  if constexpr (Visited<T>) {
    Json json = Json::object();
    T::Visit(value, internal::JsonWriter{json});
    return json;
  } else if constexpr (NamedEnum<T>) {
    return std::string(Name(value));
  } else if constexpr (internal::IsVector<T>::value) {
    Json json = Json::array();
    for (const auto& item : value) json.push_back(ToJson(item));
    return json;
  } else {
    return value;
  }
}

template <class T>
void FromJson(const Json& json, T& value, const std::string& path) {
  if constexpr (Visited<T>) {
    internal::FromJsonObject(json, value, path);
  } else if constexpr (NamedEnum<T>) {
    if (!json.is_string()) internal::Reject(path, "must be " + ListOf<T>());
    auto parsed = ParseEnum<T>(json.get<std::string>());
    if (!parsed) {
      internal::Reject(path, "'" + json.get<std::string>() + "' is not " + ListOf<T>());
    }
    value = *parsed;
  } else if constexpr (internal::IsVector<T>::value) {
    if (!json.is_array()) internal::Reject(path, "must be a list");
    value.clear();
    for (size_t i = 0; i < json.size(); ++i) {
      FromJson(json[i], value.emplace_back(), path + "[" + std::to_string(i) + "]");
    }
  } else {
    internal::FromJsonScalar(json, value, path);
  }
}

}  // namespace hbmtune

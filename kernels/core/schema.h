#pragma once

#include <string>
#include <string_view>

#include "kernels/core/json.h"

// JSON Schema (draft 2020-12) of what ToJson writes for a visited struct: types, enum names, the
// fields' help as descriptions, every field required but the optional ones, and nothing else.
namespace hbmtune {

// The schema of one value: no "$schema" and no title.
template <class T>
Json SchemaOf();

// A whole document of that name.
template <class T>
Json DocumentSchema(std::string_view title) {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
  schema.update(SchemaOf<T>());
  return schema;
}

namespace internal {

struct SchemaWriter {
  Json& properties;
  Json& required;
  template <class T>
  void operator()(const Field& field, T&) {
    Json schema;
    if constexpr (IsOptional<T>::value) {
      schema = SchemaOf<typename T::value_type>();
    } else {
      schema = SchemaOf<T>();
      required.push_back(field.name);
    }
    schema["description"] = field.help;
    properties[std::string(field.name)] = std::move(schema);
  }
};

}  // namespace internal

template <class T>
Json SchemaOf() {
  if constexpr (Visited<T>) {
    Json properties = Json::object();
    Json required = Json::array();
    T value;
    T::Visit(value, internal::SchemaWriter{properties, required});
    return {{"type", "object"},
            {"properties", properties},
            {"required", required},
            {"additionalProperties", false}};
  } else if constexpr (NamedEnum<T>) {
    return {{"type", "string"}, {"enum", EnumNames<T>::kNames}};
  } else if constexpr (internal::IsVector<T>::value) {
    return {{"type", "array"}, {"items", SchemaOf<typename T::value_type>()}};
  } else if constexpr (std::is_same_v<T, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::is_integral_v<T>) {
    return {{"type", "integer"}};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {{"type", "number"}};
  } else {
    return {{"type", "string"}};
  }
}

}  // namespace hbmtune

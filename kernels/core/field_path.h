#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/json.h"

// Fields of a visited struct by path ("zero.stage"), as pins, flags and "differs in" texts name
// them. Leaves only: a path to a nested struct is no field.
namespace hbmtune {

template <class T>
std::vector<std::string> FieldPaths();

// The field's value, or nothing if there is no such field (or it is an absent optional).
template <class T>
std::optional<Json> GetField(const T& value, std::string_view path);

// Throws std::invalid_argument for an unknown path or a value of the wrong type, naming the path.
template <class T>
void SetField(T& value, std::string_view path, const Json& json);

namespace internal {

struct PathCollector {
  std::string prefix;
  std::vector<std::string>& paths;
  template <class T>
  void operator()(const Field& field, T& value) const {
    std::string path = prefix + std::string(field.name);
    if constexpr (Visited<T>) {
      T::Visit(value, PathCollector{path + ".", paths});
    } else {
      paths.push_back(std::move(path));
    }
  }
};

// Calls `act` on the one leaf that `path` names; `found` tells whether there was one.
template <class Act>
struct PathWalker {
  std::string_view path;
  Act& act;
  bool& found;
  template <class T>
  void operator()(const Field& field, T& value) const {
    if (found || !path.starts_with(field.name)) return;
    std::string_view rest = path.substr(field.name.size());
    if constexpr (Visited<std::remove_const_t<T>>) {
      if (rest.starts_with('.')) {
        std::remove_const_t<T>::Visit(value, PathWalker{rest.substr(1), act, found});
      }
    } else if (rest.empty()) {
      found = true;
      act(value);
    }
  }
};

template <class T, class Act>
bool WalkPath(T& value, std::string_view path, Act act) {
  bool found = false;
  std::remove_const_t<T>::Visit(value, PathWalker<Act>{path, act, found});
  return found;
}

}  // namespace internal

template <class T>
std::vector<std::string> FieldPaths() {
  std::vector<std::string> paths;
  T value;
  T::Visit(value, internal::PathCollector{"", paths});
  return paths;
}

template <class T>
std::optional<Json> GetField(const T& value, std::string_view path) {
  std::optional<Json> json;
  internal::WalkPath(value, path, [&](const auto& leaf) {
    if constexpr (IsOptional<std::decay_t<decltype(leaf)>>::value) {
      if (leaf) json = ToJson(*leaf);
    } else {
      json = ToJson(leaf);
    }
  });
  return json;
}

template <class T>
void SetField(T& value, std::string_view path, const Json& json) {
  bool found = internal::WalkPath(value, path, [&](auto& leaf) {
    using Leaf = std::decay_t<decltype(leaf)>;
    if constexpr (IsOptional<Leaf>::value) {
      FromJson(json, leaf.emplace(), std::string(path));
    } else {
      FromJson(json, leaf, std::string(path));
    }
  });
  if (!found) internal::Reject(std::string(path), "unknown field");
}

}  // namespace hbmtune

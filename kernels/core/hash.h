#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/core/json.h"

namespace hbmtune {

// FNV-1a, 64 bits, as 16 hexadecimal digits.
std::string HashText(std::string_view text);

// The fields that differ from their defaults, keys sorted: what identifies a config. A new field
// at its default changes no hash.
template <class T>
std::string CanonicalText(const T& value) {
  nlohmann::json difference = nlohmann::json::diff(nlohmann::json(ToJson(T{})),
                                                   nlohmann::json(ToJson(value)));
  return difference.dump();
}

template <class T>
std::string CanonicalHash(const T& value) {
  return HashText(CanonicalText(value));
}

}  // namespace hbmtune

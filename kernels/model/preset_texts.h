#pragma once

#include <span>
#include <string_view>

namespace hbmtune {

struct PresetText {
  std::string_view name;
  std::string_view config_json;
};

// The files presets/*.json; CMake writes the definition.
std::span<const PresetText> PresetTexts();

}  // namespace hbmtune

#include "kernels/model/presets.h"

#include <algorithm>

#include "kernels/model/model_config.h"
#include "kernels/model/preset_texts.h"

namespace hbmtune {

std::optional<ModelSpec> FindPreset(std::string_view name) {
  for (const PresetText& preset : PresetTexts()) {
    if (preset.name == name) {
      return ParseModelConfig(std::string(preset.config_json), std::string(name));
    }
  }
  return std::nullopt;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const PresetText& preset : PresetTexts()) names.emplace_back(preset.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace hbmtune

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/model_spec.h"

namespace hbmtune {

// The model of that name, or nothing. Each preset is a config.json (presets/NAME.json) compiled
// in, read by ParseModelConfig.
std::optional<ModelSpec> FindPreset(std::string_view name);

// Sorted.
std::vector<std::string> PresetNames();

}  // namespace hbmtune

#pragma once

#include <string>
#include <vector>

namespace hbmtune::client {

// The models that a daemon of this version knows by name, in its order.
const std::vector<std::string>& KnownPresets();

// The preset of the same shape as a model of a hub ("meta-llama/Llama-2-7b-hf" is llama2-7b), or
// "" when none looks like it.
std::string PresetLike(const std::string& model);

}  // namespace hbmtune::client

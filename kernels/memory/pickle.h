#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace hbmtune::memory {

// The bytes of a Python pickle (protocol 2) of a JSON value: dicts, lists, str, int, float, bool
// and None. Only the opcodes that PyTorch's memory viewer understands.
std::string ToPickle(const nlohmann::ordered_json& value);

}  // namespace hbmtune::memory

#pragma once

#include <span>
#include <string_view>

namespace hbmtune::device {

// A profile's file as it stood in this folder when the binary was built.
struct EmbeddedProfile {
  std::string_view name;
  std::string_view toml;
};

std::span<const EmbeddedProfile> EmbeddedProfiles();

}  // namespace hbmtune::device

#pragma once

#include <string>

#include "kernels/device/profile.h"

namespace hbmtune::device {

// The profile as TOML, as ParseProfile reads it. `heading` goes before it as a comment.
std::string ProfileText(const DeviceProfile& profile, const std::string& heading);

}  // namespace hbmtune::device

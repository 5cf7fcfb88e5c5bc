#pragma once

#include <string>
#include <vector>

#include "hbmtune/v1/devices.pb.h"

namespace hbmtune::client {

// Of each device that is DIRTY: why, and what to do about it. Lines of at most `columns`, with no
// control characters; none if all are clean.
std::vector<std::string> DirtyLines(const v1::ListDevicesResponse& devices, size_t columns);

}  // namespace hbmtune::client

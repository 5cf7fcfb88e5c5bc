#pragma once

#include <string>

#include "client/timeline_output.h"

namespace hbmtune::client {

// The SVG in a page of its own that reads out owners under the pointer; no file but itself.
std::string ChartHtml(const TimelineOutput& output);

}  // namespace hbmtune::client

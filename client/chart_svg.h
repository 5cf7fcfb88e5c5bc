#pragma once

#include <string>

#include "client/timeline_output.h"

namespace hbmtune::client {

// Where things stand in the picture, for whoever draws over it. Pixels of the view box.
struct ChartFrame {
  double left = 0, right = 0, top = 0, bottom = 0;  // of the plot
  double most_seconds = 0;
  int64_t most_bytes = 0;  // at the top edge
};
ChartFrame FrameOf(const TimelineOutput& output);

// Memory over the step as one self-contained SVG: owners stacked upon what lies outside the
// allocator, reserved and the ceiling as lines, phases as bands; in GiB. Light or dark as the
// reader's system is. Needs at least one point.
std::string ChartSvg(const TimelineOutput& output);

// Colour of an owner, the same in every picture: "#4e79a7".
std::string_view ColourOf(Category category);

// Text between tags: <, > and & spelt out, and quotes for attributes.
std::string EscapeXml(std::string_view text);

}  // namespace hbmtune::client

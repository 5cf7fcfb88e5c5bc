#pragma once

#include <absl/status/status.h>

#include <string>

#include "client/timeline_output.h"

namespace hbmtune::client {

// What `--timeline PATH` asks for, by its ending. INVALID_ARGUMENT for one that is none of .svg,
// .json and .html.
absl::Status CheckTimelinePath(const std::string& path);

// Points that such a file needs: a picture has no more columns than that.
int64_t TimelinePoints(const std::string& path);

// Writes the picture or the series; a file that is there is replaced. FAILED_PRECONDITION when it
// cannot be written.
absl::Status WriteTimeline(const std::string& path, const TimelineOutput& output);

}  // namespace hbmtune::client

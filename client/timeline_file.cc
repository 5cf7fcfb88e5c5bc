#include "client/timeline_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "client/chart_html.h"
#include "client/chart_svg.h"

namespace hbmtune::client {

absl::Status CheckTimelinePath(const std::string& path) {
  for (const char* ending : {".svg", ".json", ".html"}) {
    if (path.ends_with(ending)) return absl::OkStatus();
  }
  return absl::InvalidArgumentError("--timeline: '" + path +
                                    "' ends in none of .svg, .json and .html");
}

int64_t TimelinePoints(const std::string& path) { return path.ends_with(".json") ? 10'000 : 1'200; }

absl::Status WriteTimeline(const std::string& path, const TimelineOutput& output) {
  std::string text;
  if (path.ends_with(".json")) {
    text = ToJson(output).dump(1) + "\n";
  } else {
    text = path.ends_with(".svg") ? ChartSvg(output) : ChartHtml(output);
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file.fail()) {
    return absl::FailedPreconditionError("cannot write " + path + ": " + std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace hbmtune::client

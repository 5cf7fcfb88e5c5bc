#include "client/chart_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "client/describe.h"
#include "client/text.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

constexpr double kWidth = 1200, kHeight = 640;
constexpr double kGiBytes = double(kGiB);

// Owners from the ground up: what stays first, what comes and goes on top of it.
constexpr std::array<Category, 10> kStack = {
    Category::kWeights,     Category::kOptimizer, Category::kGradients,     Category::kInputs,
    Category::kCheckpoints, Category::kStaging,   Category::kCommunication, Category::kActivations,
    Category::kLogits,      Category::kWorkspace};

constexpr std::array<std::string_view, kCategoryCount> kColours = {
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#edc948",
    "#9c755f", "#76b7b2", "#ff9da7", "#8cd17d", "#8a8f98", "#8a8f98"};

constexpr std::string_view kStyle = R"(<style>
  svg { --paper: #ffffff; --ink: #1f2328; --soft: #59636e; --grid: #d1d9e0; --band: #f1f3f5;
        --limit: #cf222e; background: var(--paper); }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #0d1117; --ink: #e6edf3; --soft: #9198a1; --grid: #30363d; --band: #171d26;
          --limit: #ff7b72; }
  }
  text { font: 13px system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; fill: var(--ink); }
  .title { font-size: 18px; font-weight: 600; }
  .strong { font-weight: 600; }
  .soft { fill: var(--soft); }
  .grid { stroke: var(--grid); stroke-width: 1; }
  .band { fill: var(--band); }
  .limit { stroke: var(--limit); stroke-width: 2; stroke-dasharray: 7 4; fill: none; }
  .limittext { fill: var(--limit); font-weight: 600; paint-order: stroke;
               stroke: var(--paper); stroke-width: 4px; }
  .reserved { stroke: var(--ink); stroke-width: 1.5; fill: none; }
  .mark { fill: var(--paper); stroke: var(--ink); stroke-width: 2; }
</style>
)";

std::string Format(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// 1, 2 or 5 times a power of ten, such that at most `most` of them fill `whole`.
double NiceStep(double whole, double most) {
  const double least = whole / most;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (double times : {1.0, 2.0, 5.0}) {
    if (times * power >= least) return times * power;
  }
  return 10 * power;
}

std::string GiBText(double bytes) {
  const double gib = bytes / kGiBytes;
  return Format(gib < 0.0995 ? "%.3f GiB" : gib < 9.95 ? "%.2f GiB" : "%.1f GiB", gib);
}

// One drawing: appends shapes to a text.
class Picture {
 public:
  explicit Picture(const TimelineOutput& output)
      : output_(output), line_(output.timeline), frame_(FrameOf(output)) {}

  std::string Draw() {
    svg_ = Format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"100%%\" "
        "role=\"img\" aria-label=\"memory over one training step\">\n", kWidth, kHeight);
    svg_ += kStyle;
    Title();
    Phases();
    Grid();
    Owners();
    Reserved();
    Ceiling();
    Peak();
    Legend();
    return svg_ + "</svg>\n";
  }

 private:
  double X(double seconds) const {
    const double share = frame_.most_seconds > 0 ? seconds / frame_.most_seconds : 0;
    return frame_.left + share * (frame_.right - frame_.left);
  }
  double Y(double bytes) const {
    return frame_.bottom - bytes / double(frame_.most_bytes) * (frame_.bottom - frame_.top);
  }

  void Text(double x, double y, const std::string& text, const std::string& classes = "",
            const std::string& anchor = "start") {
    svg_ += Format("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y,
                   classes.c_str(), anchor.c_str()) + EscapeXml(text) + "</text>\n";
  }
  void Line(double x1, double y1, double x2, double y2, const char* classes) {
    svg_ += Format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1,
                   y1, x2, y2, classes);
  }

  void Title() {
    const EstimateOutput& e = output_.estimate;
    const std::string evidence = DescribeEvidence(e.estimate.evidence, e.estimate.interval);
    Text(16, 30, DescribeWorkload(e.workload) + " on " + e.device, "title");
    Text(16, 52, DescribeConfigShort(e.train_config, e.workload.framework));
    std::string note = "one optimizer step in the steady state";
    if (e.train_config.grad_accum > line_.drawn_micro_steps) {
      note += ", " + std::to_string(line_.drawn_micro_steps) + " of " +
              std::to_string(e.train_config.grad_accum) + " micro-batches drawn";
    }
    if (HighestAllocated() < line_.first_step_peak_bytes) {
      note += "; the run's highest is before it, in " + e.estimate.peak_phase + ": " +
              GiBText(double(line_.first_step_peak_bytes)) + " allocated";
    }
    Text(16, 74, evidence, "strong");
    Text(kWidth - 16, 74, note, "soft", "end");
  }

  void Phases() {
    bool odd = true;
    for (const TimelinePhase& phase : line_.phases) {
      const double x = X(phase.begin_seconds), width = X(phase.end_seconds) - x;
      if (odd) {
        svg_ += Format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                       "class=\"band\"/>\n", x, frame_.top - 22, width,
                       frame_.bottom - frame_.top + 22);
      }
      odd = !odd;
      const double needed = 7.2 * static_cast<double>(phase.name.size()) + 6;
      if (width > needed) Text(x + width / 2, frame_.top - 7, phase.name, "soft", "middle");
    }
  }

  void Grid() {
    const double step = NiceStep(double(frame_.most_bytes) / kGiBytes, 8);
    for (double gib = 0; gib * kGiBytes <= double(frame_.most_bytes); gib += step) {
      const double y = Y(gib * kGiBytes);
      Line(frame_.left, y, frame_.right, y, "grid");
      Text(frame_.left - 8, y + 4.5, Format("%g", gib), "soft", "end");
    }
    Text(frame_.left - 8, frame_.top - 7, "GiB", "soft", "end");
    const double unit = frame_.most_seconds < 1 ? 1e-3 : 1;
    const double ticks = NiceStep(frame_.most_seconds / unit, 10);
    for (double t = 0; t <= frame_.most_seconds / unit; t += ticks) {
      Line(X(t * unit), frame_.bottom, X(t * unit), frame_.bottom + 5, "grid");
      Text(X(t * unit), frame_.bottom + 20, Format("%g", t), "soft", "middle");
    }
    Text((frame_.left + frame_.right) / 2, frame_.bottom + 40,
         unit < 1 ? "modelled time, ms" : "modelled time, s", "soft", "middle");
  }

  // Index of the owner in the points, if it holds anything.
  int IndexOf(Category category) const {
    const auto found = std::find(line_.categories.begin(), line_.categories.end(), category);
    return found == line_.categories.end() ? -1 : int(found - line_.categories.begin());
  }

  // A filled area between two staircases over the points.
  void Area(const std::vector<double>& low, const std::vector<double>& high,
            std::string_view colour) {
    std::string path;
    const auto& points = line_.points;
    const double end = X(frame_.most_seconds);
    for (size_t i = 0; i < points.size(); ++i) {
      path += Format(i == 0 ? "M%.1f %.1f" : "H%.1fV%.1f", X(points[i].seconds), Y(high[i]));
    }
    path += Format("H%.1fV%.1f", end, Y(low.back()));
    for (size_t i = points.size(); i-- > 0;) {
      path += Format("H%.1f", X(points[i].seconds));
      if (i > 0) path += Format("V%.1f", Y(low[i - 1]));
    }
    svg_ += "<path d=\"" + path + "Z\" fill=\"" + std::string(colour) + "\"/>\n";
  }

  void Owners() {
    const size_t count = line_.points.size();
    std::vector<double> low(count, 0), high(count, double(line_.outside_bytes));
    if (line_.outside_bytes > 0) Area(low, high, ColourOf(Category::kContext));
    for (Category category : kStack) {
      const int index = IndexOf(category);
      if (index < 0) continue;
      low = high;
      for (size_t i = 0; i < count; ++i) {
        high[i] += double(line_.points[i].category_bytes[static_cast<size_t>(index)]);
      }
      Area(low, high, ColourOf(category));
    }
  }

  void Reserved() {
    std::string path;
    double last = -1;
    for (const TimelinePoint& point : line_.points) {
      const double y = Y(double(point.reserved_bytes + line_.outside_bytes));
      if (y == last) continue;
      path += Format(path.empty() ? "M%.1f %.1f" : "H%.1fV%.1f", X(point.seconds), y);
      last = y;
    }
    svg_ += "<path class=\"reserved\" d=\"" + path + Format("H%.1f", frame_.right) + "\"/>\n";
  }

  void Ceiling() {
    const Estimate& e = output_.estimate.estimate;
    const std::string text = "ceiling " + GiBText(double(e.ceiling_bytes));
    if (e.ceiling_bytes > frame_.most_bytes) {
      Text(frame_.right - 8, frame_.top + 16, text + " ↑", "limittext", "end");
      return;
    }
    const double y = Y(double(e.ceiling_bytes));
    Line(frame_.left, y, frame_.right, y, "limit");
    Text(frame_.right - 8, y - 7, text, "limittext", "end");
  }

  void Peak() {
    const auto most = MostAllocated();
    const double bytes = double(most->allocated_bytes + line_.outside_bytes);
    const double x = X(most->seconds), y = Y(bytes);
    svg_ += Format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" class=\"mark\"/>\n", x, y);
  }

  std::vector<TimelinePoint>::const_iterator MostAllocated() const {
    return std::max_element(line_.points.begin(), line_.points.end(),
                            [](const auto& a, const auto& b) {
                              return a.allocated_bytes < b.allocated_bytes;
                            });
  }

  int64_t HighestAllocated() const { return MostAllocated()->allocated_bytes; }

  // Too little to be seen, all through the step.
  bool IsTiny(size_t index) const {
    return std::all_of(line_.points.begin(), line_.points.end(), [&](const auto& point) {
      return point.category_bytes[index] < frame_.most_bytes / 1000;
    });
  }

  void Legend() {
    const Estimate& e = output_.estimate.estimate;
    const auto most = MostAllocated();
    const double x = frame_.right + 22;
    double y = frame_.top + 4;
    Text(x, y, "at the peak", "soft");
    y += 24;
    for (auto category = kStack.rbegin(); category != kStack.rend(); ++category) {
      const int index = IndexOf(*category);
      if (index < 0 || IsTiny(static_cast<size_t>(index))) continue;
      const int64_t bytes = most->category_bytes[static_cast<size_t>(index)];
      LegendRow(x, y, ColourOf(*category), std::string(Name(*category)), bytes);
      y += 22;
    }
    if (line_.outside_bytes > 0) {
      LegendRow(x, y, ColourOf(Category::kContext), "outside", line_.outside_bytes);
      y += 22;
    }
    y += 8;
    for (const auto& [name, bytes] : {std::pair("allocated", HighestAllocated()),
                                      std::pair("reserved —", e.peak_reserved_bytes),
                                      std::pair("used", e.peak_used_bytes)}) {
      Text(x, y, name, "soft");
      Text(kWidth - 16, y, GiBText(double(bytes)), "", "end");
      y += 20;
    }
    Text(x, y + 8, e.fits ? "fits" : "does not fit", e.fits ? "" : "limittext");
  }

  void LegendRow(double x, double y, std::string_view colour, const std::string& name,
                 int64_t bytes) {
    svg_ += Format("<rect x=\"%.1f\" y=\"%.1f\" width=\"13\" height=\"13\" fill=\"", x, y - 11) +
            std::string(colour) + "\"/>\n";
    Text(x + 20, y, name);
    Text(kWidth - 16, y, bytes == 0 ? "–" : GiBText(double(bytes)), "", "end");
  }

  const TimelineOutput& output_;
  const StepTimeline& line_;
  const ChartFrame frame_;
  std::string svg_;
};

}  // namespace

ChartFrame FrameOf(const TimelineOutput& output) {
  ChartFrame frame{64, kWidth - 216, 116, kHeight - 56, output.timeline.step_seconds, 0};
  int64_t most = 1;
  for (const TimelinePoint& point : output.timeline.points) {
    most = std::max(most, point.reserved_bytes + output.timeline.outside_bytes);
  }
  // A ceiling far above the curve would press it flat: then it is only named.
  const int64_t ceiling = output.estimate.estimate.ceiling_bytes;
  if (ceiling < 3 * most) most = std::max(most, ceiling);
  frame.most_bytes = most + most / 20;
  return frame;
}

std::string ChartSvg(const TimelineOutput& output) { return Picture(output).Draw(); }

std::string_view ColourOf(Category category) { return kColours[static_cast<size_t>(category)]; }

std::string EscapeXml(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    switch (c) {
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '&': escaped += "&amp;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

}  // namespace hbmtune::client

#include "client/chart_html.h"

#include "client/chart_svg.h"
#include "client/describe.h"

namespace hbmtune::client {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  :root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --edge: #d1d9e0; }
  @media (prefers-color-scheme: dark) {
    :root { --paper: #0d1117; --ink: #e6edf3; --edge: #30363d; }
  }
  body { margin: 0 auto; max-width: 1400px; background: var(--paper); color: var(--ink);
         font: 13px system-ui, sans-serif; position: relative; }
  #read { position: absolute; display: none; pointer-events: none; background: var(--paper);
          border: 1px solid var(--edge); border-radius: 6px; padding: 8px 10px; }
  #read td { padding: 0 0 0 12px; text-align: right; }
  #read td:first-child { padding: 0; text-align: left; }
  #read i { display: inline-block; width: 10px; height: 10px; margin-right: 6px; }
</style>
)";

// The pointer's place in the view box picks the last point before it.
constexpr std::string_view kScript = R"(
const svg = document.querySelector("svg"), box = document.getElementById("read");
const hair = document.createElementNS("http://www.w3.org/2000/svg", "line");
hair.setAttribute("class", "reserved");
hair.setAttribute("y1", chart.frame.top);
hair.setAttribute("y2", chart.frame.bottom);
hair.style.display = "none";
svg.append(hair);
const gib = bytes => (bytes / 2 ** 30).toFixed(2) + " GiB";
const row = (name, bytes, colour) => "<tr><td><i style='background:" + colour + "'></i>" + name +
    "</td><td>" + gib(bytes) + "</td></tr>";
svg.addEventListener("pointermove", event => {
  const f = chart.frame, t = chart.timeline;
  const place = new DOMPoint(event.clientX, event.clientY)
      .matrixTransform(svg.getScreenCTM().inverse());
  const inside = place.x >= f.left && place.x <= f.right;
  box.style.display = hair.style.display = inside ? "block" : "none";
  if (!inside) return;
  const seconds = (place.x - f.left) / (f.right - f.left) * t.step_seconds;
  let low = 0, high = t.points.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (t.points[middle].seconds <= seconds) low = middle; else high = middle - 1;
  }
  const point = t.points[low];
  const phase = t.phases.findLast(p => p.begin_seconds <= seconds);
  let rows = point.category_bytes
      .map((bytes, i) => ({bytes, name: t.categories[i], colour: chart.colours[i]}))
      .filter(owner => owner.bytes > 0).sort((a, b) => b.bytes - a.bytes)
      .map(owner => row(owner.name, owner.bytes, owner.colour)).join("");
  rows += row("outside", t.outside_bytes, "#8a8f98");
  rows += row("allocated", point.allocated_bytes, "none") +
      row("reserved", point.reserved_bytes, "none") +
      row("used", point.reserved_bytes + t.outside_bytes, "none");
  box.innerHTML = "<b>" + (phase ? phase.name : "") + "</b> at " +
      seconds.toPrecision(3) + " s<table>" + rows + "</table>";
  hair.setAttribute("x1", place.x);
  hair.setAttribute("x2", place.x);
  const left = event.pageX - document.body.offsetLeft;
  const flip = left > document.body.clientWidth / 2;
  box.style.left = (flip ? left - box.offsetWidth - 16 : left + 16) + "px";
  box.style.top = Math.max(8, event.pageY - box.offsetHeight / 2) + "px";
});
svg.addEventListener("pointerleave", () => {
  box.style.display = hair.style.display = "none";
});
)";

// "</script>" in a model's name must not end the script.
std::string ScriptJson(const Json& json) {
  std::string text;
  for (char c : json.dump()) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string ChartHtml(const TimelineOutput& output) {
  const ChartFrame frame = FrameOf(output);
  Json chart = {{"frame", {{"left", frame.left}, {"right", frame.right}, {"top", frame.top},
                           {"bottom", frame.bottom}}},
                {"timeline", ToJson(output.timeline)},
                {"colours", Json::array()}};
  for (Category category : output.timeline.categories) {
    chart["colours"].push_back(ColourOf(category));
  }
  const std::string title = "hbmtune: " + DescribeWorkload(output.estimate.workload);
  std::string page(kHead);
  page += "<title>" + EscapeXml(title) + "</title></head><body>\n" + ChartSvg(output);
  page += "<div id=\"read\"></div>\n<script>\nconst chart = " + ScriptJson(chart) + ";";
  page += kScript;
  return page + "</script></body></html>\n";
}

}  // namespace hbmtune::client

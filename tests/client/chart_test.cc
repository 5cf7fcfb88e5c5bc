#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "client/chart_html.h"
#include "client/chart_svg.h"
#include "client/timeline_file.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

TimelineOutput Small() {
  TimelineOutput output;
  EstimateOutput& e = output.estimate;
  e.workload.model.name = "tiny <llama> & co";
  e.device = "model:mi210";
  e.estimate.ceiling_bytes = 12 * kGiB;
  e.estimate.peak_allocated_bytes = 9 * kGiB;
  e.estimate.interval = {-0.03, 0.05};
  output.timeline = {2.0, 1, kGiB / 2, 9 * kGiB, {Category::kWeights, Category::kActivations},
                     {{"forward", 0, 0.8}, {"backward", 0.8, 2.0}},
                     {{0, 4 * kGiB, 10 * kGiB, {4 * kGiB, 0}},
                      {0.5, 9 * kGiB, 10 * kGiB, {4 * kGiB, 5 * kGiB}},
                      {1.5, 4 * kGiB, 10 * kGiB, {4 * kGiB, 0}}}};
  return output;
}

// Every tag that opens is closed, in order.
void ExpectBalanced(const std::string& xml) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)[^>]*?(/?)>");
  for (auto it = std::sregex_iterator(xml.begin(), xml.end(), tag);
       it != std::sregex_iterator(); ++it) {
    if ((*it)[3] == "/") continue;
    if ((*it)[1] == "") {
      open.push_back((*it)[2]);
    } else {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*it)[2]);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(ChartSvg, NamesWhatItShows) {
  const std::string svg = ChartSvg(Small());
  ExpectBalanced(svg);
  for (const char* words : {"tiny &lt;llama&gt; &amp; co", "on model:mi210", "PREDICTED",
                            "ceiling 12.0 GiB", ">forward<", ">backward<", ">weights<",
                            ">activations<", ">outside<", ">GiB<", "prefers-color-scheme"}) {
    EXPECT_NE(svg.find(words), std::string::npos) << words;
  }
  EXPECT_EQ(svg.find("http", svg.find("viewBox")), std::string::npos) << "not self-contained";
}

TEST(ChartSvg, StacksOwnersUpToWhatIsAllocated) {
  const TimelineOutput output = Small();
  const ChartFrame frame = FrameOf(output);
  // Allocated and outside the allocator together, at the peak.
  const double y = frame.bottom - 9.5 * double(kGiB) / double(frame.most_bytes) *
                                      (frame.bottom - frame.top);
  char text[32];
  std::snprintf(text, sizeof text, "V%.1f", y);
  EXPECT_NE(ChartSvg(output).find(text), std::string::npos) << text;
}

TEST(ChartSvg, ACeilingFarAboveIsOnlyNamed) {
  TimelineOutput output = Small();
  output.estimate.estimate.ceiling_bytes = 64 * kGiB;
  EXPECT_LT(FrameOf(output).most_bytes, 12 * kGiB);
  EXPECT_NE(ChartSvg(output).find("ceiling 64.0 GiB ↑"), std::string::npos);
}

TEST(ChartHtml, CarriesTheSeriesAndNoForeignScript) {
  TimelineOutput output = Small();
  output.estimate.workload.model.name = "</script><b>";
  const std::string html = ChartHtml(output);
  EXPECT_NE(html.find("\"category_bytes\""), std::string::npos);
  EXPECT_EQ(html.find("src="), std::string::npos);
  EXPECT_EQ(html.find("</script><b>"), std::string::npos);
}

TEST(TimelineFile, IsChosenByItsEnding) {
  EXPECT_TRUE(CheckTimelinePath("a.svg").ok());
  EXPECT_TRUE(CheckTimelinePath("a.b.html").ok());
  EXPECT_FALSE(CheckTimelinePath("a.png").ok());
  const std::string path = testing::TempDir() + "hbmtune_timeline.json";
  ASSERT_TRUE(WriteTimeline(path, Small()).ok());
  std::ifstream file(path);
  const Json json = Json::parse(file);
  EXPECT_EQ(json["timeline"]["points"].size(), 3U);
  EXPECT_EQ(json["timeline"]["categories"][1], "activations");
  EXPECT_EQ(json["device"], "model:mi210");
  EXPECT_FALSE(WriteTimeline("/nonexistent/a.svg", Small()).ok());
}

}  // namespace
}  // namespace hbmtune::client

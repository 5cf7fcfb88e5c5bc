#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "kernels/core/json.h"
#include "tuner/verify/verify.h"

// Every recording of Transformers and DeepSpeed (tests/reference) against the Program of the same
// run. HBMTUNE_EXPLAIN=1 names the first event of each that differs; HBMTUNE_RECORDINGS=DIR reads
// DIR/hf and DIR/deepspeed instead.
namespace hbmtune::tuner {
namespace {

struct Summary {
  int runs = 0, same = 0;
  double sum = 0, worst = 0;
  std::string worst_name;
};

void Explain(const Verification& run) {
  std::cout << run.name << ": worst " << 100 * run.worst_ratio << " % (" << run.worst_phase
            << ")\n";
  if (!run.first_difference) return;
  const FirstDifference& d = *run.first_difference;
  std::cout << "    " << d.phase << " of step " << d.step << ", event " << d.event << ": "
            << d.expected_bytes << " " << d.expected_op << " for " << d.recorded_bytes << " "
            << d.recorded_op << "\n";
}

void VerifyFile(const std::filesystem::path& path, Summary& summary) {
  std::ifstream file(path);
  const Json whole = Json::parse(file);
  for (const Json& run : whole.at("runs")) {
    const auto verified = VerifyRun(run);
    if (!verified.ok() && run.at("spec").value("offload", "") == "optimizer+param") {
      EXPECT_NE(verified.status().message().find("is not modelled"), std::string::npos);
      continue;
    }
    ASSERT_TRUE(verified.ok()) << run.at("name") << ": " << verified.status();
    ++summary.runs;
    summary.same += verified->same_events;
    summary.sum += verified->worst_ratio;
    if (verified->worst_ratio > summary.worst) {
      summary.worst = verified->worst_ratio;
      summary.worst_name = verified->name + ", " + verified->worst_phase;
    }
    if (std::getenv("HBMTUNE_EXPLAIN") != nullptr && !verified->same_events) Explain(*verified);
  }
}

// All files of a folder whose name begins like this.
Summary VerifyAll(const std::string& folder, const std::string& prefix = "") {
  Summary summary;
  const char* other = std::getenv("HBMTUNE_RECORDINGS");
  const std::string root = other != nullptr ? other : HBMTUNE_TEST_DATA;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/" + folder)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() != ".json" || name.rfind(prefix, 0) != 0) continue;
    VerifyFile(entry.path(), summary);
  }
  std::cout << folder << "/" << prefix << "*: " << summary.runs << " runs, " << summary.same
            << " with equal events, mean error " << 100 * summary.sum / summary.runs
            << " %, worst " << 100 * summary.worst << " % (" << summary.worst_name << ")\n";
  return summary;
}

TEST(HfRecordings, PeaksAndEventsAreThoseOfTransformers) {
  const Summary summary = VerifyAll("hf");
  EXPECT_GE(summary.runs, 260);
  EXPECT_GE(summary.same, 0.9 * summary.runs);
  EXPECT_LE(summary.sum / summary.runs, 0.01);
  EXPECT_LE(summary.worst, 0.03) << summary.worst_name;
}

// DeepSpeed has checks of a few bytes of its own: peaks only.
void ExpectPeaks(const Summary& summary, int runs) {
  EXPECT_GE(summary.runs, runs);
  EXPECT_LE(summary.sum / summary.runs, 0.001);
  EXPECT_LE(summary.worst, 0.01) << summary.worst_name;
}

TEST(HfRecordings, PeaksAreThoseOfDeepspeed) { ExpectPeaks(VerifyAll("deepspeed", "zero"), 92); }

// Drawn at random: all stages, with LoRA, checkpointing, accumulation and offload.
TEST(HfRecordings, PeaksAreThoseOfDeepspeedsDrawnRuns) {
  ExpectPeaks(VerifyAll("deepspeed", "fresh"), 68);
}

}  // namespace
}  // namespace hbmtune::tuner

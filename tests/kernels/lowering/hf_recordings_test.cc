#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/kernels/lowering/hf_recording.h"

// Transformers on PyTorch, recorded (tests/reference/record_hf.py), against LowerHf.
namespace hbmtune::testing {
namespace {

struct Summary {
  int runs = 0;
  int same = 0;
  double sum = 0;
  double worst = 0;
  std::string worst_name;
};

void CompareFile(const std::string& path, Summary& summary,
                 const std::vector<std::string>& but = {}) {
  const bool explain = std::getenv("HBMTUNE_EXPLAIN") != nullptr;
  for (const HfRecording& recording : LoadRecordings(path)) {
    const bool left_out = std::any_of(but.begin(), but.end(), [&](const std::string& word) {
      return recording.name.find(word) != std::string::npos;
    });
    if (left_out) continue;
    ++summary.runs;
    try {
      Program program = lowering::LowerHf(recording.workload, recording.config, recording.options);
      RecordingError error = CompareToRecording(recording, EventsOf(program));
      summary.sum += error.worst;
      summary.same += error.same_events;
      if (error.worst > summary.worst) {
        summary.worst = error.worst;
        summary.worst_name = recording.name + ", " + error.where;
      }
      if (explain && !error.same_events) {
        std::cout << recording.name << ": worst " << 100 * error.worst << " % (" << error.where
                  << ")\n    " << error.first_difference << "\n";
      }
    } catch (const std::invalid_argument& error) {
      summary.worst = 1;
      summary.worst_name = recording.name + ": " + error.what();
      summary.sum += 1;
      if (explain) std::cout << recording.name << ": " << error.what() << "\n";
    }
  }
}

TEST(HfRecordings, PeaksAndEventsAreThoseOfTransformers) {
  Summary summary;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(HBMTUNE_TEST_DATA) + "/hf")) {
    if (entry.path().extension() != ".json") continue;
    CompareFile(entry.path(), summary);
  }
  std::cout << summary.runs << " runs, " << summary.same << " with equal events, mean error "
            << 100 * summary.sum / summary.runs << " %, worst " << 100 * summary.worst << " % ("
            << summary.worst_name << ")\n";
  EXPECT_GE(summary.runs, 80);
  EXPECT_GE(summary.same, 0.9 * summary.runs);
  EXPECT_LE(summary.sum / summary.runs, 0.01);
  EXPECT_LE(summary.worst, 0.03) << summary.worst_name;
}

// DeepSpeed has checks of a few bytes of its own: peaks only.
TEST(HfRecordings, PeaksOfDeepspeedsStages1And2) {
  Summary summary;
  for (const char* name : {"zero1", "zero2"}) {
    CompareFile(std::string(HBMTUNE_TEST_DATA) + "/deepspeed/" + name + ".json", summary);
  }
  std::cout << summary.runs << " runs of ZeRO 1 and 2, mean error "
            << 100 * summary.sum / summary.runs << " %, worst " << 100 * summary.worst << " % ("
            << summary.worst_name << ")\n";
  EXPECT_GE(summary.runs, 12);
  EXPECT_LE(summary.sum / summary.runs, 0.03);
  EXPECT_LE(summary.worst, 0.08) << summary.worst_name;
}

// Drawn at random: all stages, with LoRA, checkpointing, accumulation and offload.
TEST(HfRecordings, PeaksOfDeepspeedsDrawnRuns) {
  Summary summary;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(HBMTUNE_TEST_DATA) + "/deepspeed")) {
    if (entry.path().filename().string().rfind("fresh_", 0) != 0) continue;
    CompareFile(entry.path(), summary);
  }
  std::cout << summary.runs << " drawn runs of ZeRO, mean error "
            << 100 * summary.sum / summary.runs << " %, worst " << 100 * summary.worst << " % ("
            << summary.worst_name << ")\n";
  EXPECT_GE(summary.runs, 40);
  EXPECT_LE(summary.sum / summary.runs, 0.001);
  EXPECT_LE(summary.worst, 0.01) << summary.worst_name;
}

// Offload of parameters is not modelled.
TEST(HfRecordings, PeaksOfDeepspeedsStage3) {
  Summary summary;
  CompareFile(std::string(HBMTUNE_TEST_DATA) + "/deepspeed/zero3.json", summary,
              {"offload=optimizer+param"});
  std::cout << summary.runs << " runs of ZeRO 3, mean error " << 100 * summary.sum / summary.runs
            << " %, worst " << 100 * summary.worst << " % (" << summary.worst_name << ")\n";
  EXPECT_GE(summary.runs, 12);
  EXPECT_LE(summary.sum / summary.runs, 0.03);
  EXPECT_LE(summary.worst, 0.08) << summary.worst_name;
}

}  // namespace
}  // namespace hbmtune::testing

#include "client/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "client/conclude.h"
#include "client/text.h"

namespace hbmtune::client {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

RecommendationOutput Example() {
  RecommendationOutput output;
  output.study = "studies/7";
  output.workload.framework = Framework::kHfSdpa;
  output.train_config = TrainConfig{};
  output.train_config->checkpoint.every = 1;
  output.estimate = Estimate{};
  output.estimate->tokens_per_second = 1234;
  output.estimate->step_seconds = 1.66;
  output.estimate->peak_used_bytes = 48 * kGiB;
  output.estimate->capacity_bytes = 64 * kGiB;
  output.estimate->interval = {-0.05, 0.05};
  output.evidence = Evidence::kPredicted;
  output.limited_by = "memory";
  output.why = "micro-batch 2 does not fit";
  CandidateOutput next;
  next.tokens_per_second = 1200;
  next.peak_used_bytes = 40 * kGiB;
  next.differs_in = "no checkpointing";
  output.runners_up = {next};
  return output;
}

std::string Shown(const std::function<void(Terminal&)>& print, size_t columns = 0) {
  std::FILE* file = std::tmpfile();
  {
    Terminal terminal(file, columns > 0, false, columns);
    print(terminal);
  }
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

TEST(Report, TheRecommendationStandsBesideItsFigures) {
  EXPECT_EQ(Shown([](Terminal& t) { PrintRecommendation(t, Example()); }),
            "\n"
            "recommended                                     evidence PREDICTED (peak −5 %…+5 %)\n"
            "  micro-batch 1 × accumulation 1                1,234 tok/s, 1.7 s a step\n"
            "  checkpoint every layer                        peak 48.00 GiB of 64.00 GiB (75 %)\n"
            "  fp32                                          limited by: memory\n"
            "  micro-batch 2 does not fit\n"
            "\n"
            "runners-up  tok/s       peak  evidence   differs in\n"
            "  #2        1,200  40.00 GiB  PREDICTED  no checkpointing\n");
}

TEST(Report, ALongLineOfTheConfigIsWrappedBesideTheFigures) {
  RecommendationOutput output = Example();
  output.train_config->zero.stage = 1;
  output.train_config->offload.optimizer = OptimizerOffload::kCpuAdam;
  output.train_config->offload.activations = ActivationOffload::kCheckpoints;
  EXPECT_THAT(Shown([&](Terminal& t) { PrintRecommendation(t, output); }),
              HasSubstr("  ZeRO 1, optimizer on the CPU, checkpoints\n"
                        "    in host memory, buckets 5e8\n"));
}

TEST(Report, AMeasurementIsShownInPlaceOfItsEstimate) {
  RecommendationOutput output = Example();
  output.measurement = Measurement{};
  output.measurement->tokens_per_second = 55;
  output.measurement->peak_used_bytes = kGiB;
  output.measurement->capacity_bytes = 2 * kGiB;
  output.evidence = Evidence::kMeasured;
  std::string text = Shown([&](Terminal& t) { PrintRecommendation(t, output); });
  EXPECT_THAT(text, HasSubstr("evidence MEASURED\n"));
  EXPECT_THAT(text, HasSubstr("55.0 tok/s"));
  EXPECT_THAT(text, HasSubstr("peak 1.00 GiB of 2.00 GiB (50 %)"));
}

TEST(Report, NothingIsWiderThanTheTerminal) {
  RecommendationOutput output = Example();
  output.why = std::string(30, 'w') + " " + std::string(90, 'x');
  output.runners_up[0].differs_in = std::string(200, 'd');
  for (size_t columns : {20u, 40u, 79u, 100u}) {
    std::istringstream lines(
        Shown([&](Terminal& t) { PrintRecommendation(t, output); }, columns));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(DisplayWidth(line), columns) << line;
    }
  }
}

TEST(Report, NothingFitsSaysByHowMuchAndWhatWouldHelp) {
  RecommendationOutput output;
  output.shortfall = ShortfallOutput{};
  output.shortfall->message = "nothing fits in 8.00 GiB: the least is 12.00 GiB (micro-batch 1)";
  output.shortfall->estimate.breakdown = {{Category::kWeights, 8 * kGiB},
                                          {Category::kContext, kGiB}};
  output.shortfall->hints = {{"offload.optimizer=cpu_adam", 6 * kGiB, 0.09, true, 6 * kGiB}};
  EXPECT_EQ(Shown([&](Terminal& t) { PrintRecommendation(t, output); }),
            "nothing fits in 8.00 GiB: the least is 12.00 GiB (micro-batch 1)\n"
            "  weights 8.00 GiB · outside the allocator 1.00 GiB\n"
            "what would help:\n"
            "  offload.optimizer=cpu_adam  needs 6.00 GiB, costs 9 % time: fits\n");
}

TEST(Report, AnEstimateShowsOwnersAsBarsAndTheVerdict) {
  EstimateOutput output;
  output.device = "model:mi210";
  output.estimate.peak_used_bytes = 10 * kGiB;
  output.estimate.ceiling_bytes = 8 * kGiB;
  output.estimate.capacity_bytes = 8 * kGiB;
  output.estimate.breakdown = {{Category::kLogits, kGiB}, {Category::kWeights, 5 * kGiB}};
  output.estimate.peak_phase = "backward";
  std::string text = Shown([&](Terminal& t) { PrintEstimate(t, output); });
  EXPECT_THAT(text, HasSubstr("  weights                5.00 GiB  ███████████████\n"
                              "  logits                 1.00 GiB  ███\n"));
  EXPECT_THAT(text, HasSubstr("allocated (backward)"));
  EXPECT_THAT(text, HasSubstr("does not fit: 10.00 GiB of 8.00 GiB that may be used (the device "
                              "has 8.00 GiB)"));
  output.device = "host";
  EXPECT_THAT(Shown([&](Terminal& t) { PrintEstimate(t, output); }),
              HasSubstr("that may be used (--memory, or half of the machine's)"));
}

TEST(Report, AnEstimateNamesTheHostsMemoryWhereThatIsShort) {
  EstimateOutput output;
  output.host_ceiling_bytes = 10 * kGiB;
  output.estimate.peak_used_bytes = 27 * kGiB;
  output.estimate.ceiling_bytes = 182 * kGiB;
  output.estimate.capacity_bytes = 192 * kGiB;
  output.estimate.host_bytes = 113 * kGiB;
  const auto print = [&](Terminal& t) { PrintEstimate(t, output); };
  EXPECT_THAT(Shown(print), HasSubstr("\ndoes not fit: needs 113.00 GiB of host memory, of which "
                                      "10.00 GiB may be used\n"));
  output.estimate.peak_used_bytes = 200 * kGiB;
  EXPECT_THAT(Shown(print),
              HasSubstr("\ndoes not fit: 200.00 GiB of 182.00 GiB that may be used (the device has "
                        "192.00 GiB), and needs 113.00 GiB of host memory, of which 10.00 GiB may "
                        "be used\n"));
}

TEST(Verdict, NothingFitsIsNoFailureButTrialsThatNeverEndedAre) {
  RecommendationOutput output;
  output.study = "studies/7";
  output.trials = 2;
  output.shortfall.emplace();
  output.shortfall->message = "nothing fits in 8.00 GiB";
  EXPECT_EQ(VerdictOn(output).code, kNothingFits);
  EXPECT_EQ(VerdictOn(output).sentence, "nothing fits in 8.00 GiB");
  output.shortfall->estimate.fits = true;
  EXPECT_EQ(VerdictOn(output).code, kFailed);
  EXPECT_EQ(VerdictOn(output).sentence,
            "no trial ended within the budget; give more with --budget, and see hbmtune show 7");
  output.out_of_memory_trials = 1;
  EXPECT_EQ(VerdictOn(output).code, kNothingFits);
  output.train_config.emplace();
  EXPECT_EQ(VerdictOn(output).code, kDone);
}

}  // namespace
}  // namespace hbmtune::client

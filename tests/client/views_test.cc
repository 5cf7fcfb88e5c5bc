#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "client/device_lines.h"
#include "client/report_effects.h"
#include "client/sweep_report.h"
#include "client/text.h"
#include "client/timeline_output.h"
#include "client/verify_output.h"
#include "client/verify_report.h"
#include "hbmtune/v1/tuning.pb.h"
#include "kernels/core/field_path.h"
#include "kernels/core/units.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

// What a function prints where there is no terminal.
template <class Print>
std::string Printed(const Print& print) {
  std::FILE* file = std::tmpfile();
  {
    Terminal terminal(file, false, false, 0);
    print(terminal);
  }
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

void ExpectNarrow(const std::string& text, size_t columns) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(DisplayWidth(text.substr(begin, end - begin)), columns)
        << text.substr(begin, end - begin);
    begin = end == std::string::npos ? text.size() : end + 1;
  }
}

std::vector<Effect> SomeEffects() {
  return {{"offload.optimizer", "offload.optimizer=cpu_adam with zero.stage=2",
           100 * kGiB + kGiB / 3, 12.5, 200 * kGiB, true},
          {"checkpoint.every", "checkpoint.every=1", 3 * kGiB, 0.28, 0, false},
          {"checkpoint.every", "checkpoint.every=2", 2 * kGiB, 0.2, 0, false},
          {"checkpoint.every", "checkpoint.every=4", kGiB, 0.1, 0, false},
          {"checkpoint.every", "checkpoint.every=8", kGiB / 2, 0.05, 0, false},
          {"micro_batch", "micro_batch=8", -kGiB, -0.1, 0, false}};
}

TEST(PrintEffects, FitsEightyColumnsAndSaysWhatFits) {
  const std::string text =
      Printed([](Terminal& terminal) { PrintEffects(terminal, SomeEffects(), false); });
  ExpectNarrow(text, 80);
  for (const char* words : {"offload.optimizer=cpu_adam", "+1,250 %", "fits", "+28 %",
                            "−1.00 GiB", "−10 %", "1 more value"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_EQ(text.find("checkpoint.every=8"), std::string::npos) << "three of a tunable";
  EXPECT_EQ(text.find("none of these"), std::string::npos);
}

TEST(PrintEffects, SaysWhenNothingMakesItFit) {
  auto effects = SomeEffects();
  effects.erase(effects.begin());
  EXPECT_NE(Printed([&](Terminal& t) { PrintEffects(t, effects, false); })
                .find("none of these alone makes it fit"),
            std::string::npos);
}

TEST(SweepCsv, HasACellForEachField) {
  SweptConfigOutput swept;
  swept.estimate.limited_by = "memory (weights 24 GiB, \"logits\" 8 GiB)";
  const std::string titles = CsvTitles();
  const std::string row = CsvRow(swept);
  EXPECT_EQ(std::count(titles.begin(), titles.end(), ','),
            9 + static_cast<long>(FieldPaths<TrainConfig>().size()));
  // One comma stands in a quoted cell.
  EXPECT_EQ(std::count(row.begin(), row.end(), ','),
            std::count(titles.begin(), titles.end(), ',') + 1);
  EXPECT_NE(row.find("\"memory (weights 24 GiB, \"\"logits\"\" 8 GiB)\""), std::string::npos);
}

std::string SweepOf(int64_t estimated, bool complete, bool fits) {
  SweepOutput sweep;
  sweep.total = 24;
  sweep.estimated = estimated;
  sweep.complete = complete;
  if (fits) sweep.front.emplace_back();
  if (!fits && estimated > 0) sweep.least.emplace();
  return Printed([&](Terminal& terminal) { PrintSweep(terminal, sweep); });
}

TEST(PrintSweep, AnInterruptedOneClaimsNothingOfWhatWasNotTried) {
  const std::string whole = SweepOf(24, true, true);
  EXPECT_NE(whole.find("\n24 configs: 24 estimated"), std::string::npos) << whole;
  EXPECT_NE(whole.find("none is both faster and leaner"), std::string::npos) << whole;
  const std::string cut = SweepOf(9, false, true);
  EXPECT_NE(cut.find("\ninterrupted, 15 not tried; of 24 configs: 9 estimated"),
            std::string::npos) << cut;
  EXPECT_NE(cut.find("Pareto front of what was tried"), std::string::npos) << cut;
  EXPECT_NE(SweepOf(9, false, false).find("none of the 9 estimated so far fits in 0 B: the least"),
            std::string::npos);
  EXPECT_EQ(SweepOf(0, false, false), "interrupted before a config was estimated\n");
}

TEST(PrintSweep, NamesTheHostsMemoryWhereThatIsShort) {
  SweepOutput sweep;
  sweep.total = sweep.estimated = 24;
  sweep.complete = true;
  sweep.host_ceiling_bytes = 10 * kGiB;
  Estimate& least = sweep.least.emplace().estimate;
  least.ceiling_bytes = 60 * kGiB;
  least.peak_used_bytes = 20 * kGiB;
  least.host_bytes = 100 * kGiB;
  const auto print = [&](Terminal& terminal) { PrintSweep(terminal, sweep); };
  EXPECT_NE(Printed(print).find("nothing fits in the host's memory: what needs least of the device "
                                "needs 100.00 GiB of host memory, of which 10.00 GiB may be used"),
            std::string::npos) << Printed(print);
  least.peak_used_bytes = 80 * kGiB;
  EXPECT_NE(Printed(print).find("nothing fits in 60.00 GiB: the least is 80.00 GiB"),
            std::string::npos) << Printed(print);
}

TEST(DirtyLines, SayWhyAndWhatToDo) {
  v1::ListDevicesResponse devices;
  devices.add_devices()->set_name("host");
  EXPECT_TRUE(DirtyLines(devices, 80).empty());
  v1::Device& dirty = *devices.add_devices();
  dirty.set_name("0000:03:00.0");
  dirty.set_dirty("12.00 GiB were not given back\x1b[2J");
  std::string text;
  for (const std::string& line : DirtyLines(devices, 60)) text += line + "\n";
  ExpectNarrow(text, 60);
  EXPECT_TRUE(text.starts_with("0000:03:00.0 is dirty: 12.00 GiB were not given back?[2J"))
      << text;
  EXPECT_NE(text.find("hbmtune resume"), std::string::npos) << text;
  EXPECT_EQ(text.find("host"), std::string::npos) << text;
}

TEST(PrintVerification, NamesTheFirstDifference) {
  VerifyOutput output;
  output.runs = 1;
  output.tolerance_ratio = 0.01;
  RunVerificationOutput& run = output.verifications.emplace_back();
  run.workload.model.name = "llama";
  run.worst_ratio = 0.2;
  run.phases = {{"backward", 2, kGiB, kGiB / 2, kGiB, 0.5, false}};
  run.first_difference = {"backward", 2, 17, 4096, "mul", -512, "free"};
  const std::string text =
      Printed([&](Terminal& terminal) { PrintVerification(terminal, output); });
  for (const char* words : {"backward of step 2, event 17", "allocates 4,096 bytes for mul",
                            "frees 512 bytes", "different", "50.00 %"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

// The output structs are filled from messages by field name: a name that drifts throws here.
TEST(Views, OutputsAgreeWithTheirMessages) {
  EXPECT_NO_THROW(FromProto<Effect>(v1::Effect()));
  EXPECT_NO_THROW(FromProto<StepTimeline>(v1::StepTimeline()));
  EXPECT_NO_THROW(FromProto<TimelinePoint>(v1::TimelinePoint()));
  EXPECT_NO_THROW(FromProto<TimelinePhase>(v1::TimelinePhase()));
  EXPECT_NO_THROW(FromProto<SweptConfigOutput>(v1::SweptConfig()));
  EXPECT_NO_THROW(FromProto<PhaseVerification>(v1::PhaseVerification()));
  EXPECT_NO_THROW(FromProto<FirstDifference>(v1::FirstDifference()));
  EXPECT_NO_THROW(FromProto<Verification>(v1::Verification()));
}

}  // namespace
}  // namespace hbmtune::client

#include "daemon/telemetry/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/units.h"

namespace hbmtune {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

AllocatorReport Report(int64_t step, int64_t active_gib, int64_t reserved_gib) {
  return {step, active_gib * kGiB, reserved_gib * kGiB, active_gib * kGiB, 0, 0};
}

TEST(MemoryMonitor, DerivesWhatTheDriverAndTheJobTellTogether) {
  MemoryMonitor monitor;
  monitor.Add(Report(1, 30, 40), 43 * kGiB, 64 * kGiB);
  EXPECT_DOUBLE_EQ(monitor.state().fragmentation_ratio, 0.25);
  EXPECT_EQ(monitor.state().cache_resident_bytes, 10 * kGiB);
  EXPECT_EQ(monitor.state().outside_allocator_bytes, 3 * kGiB);
  EXPECT_EQ(monitor.state().safe_allocation_bytes, 21 * kGiB);
}

TEST(MemoryMonitor, LeavesOutWhatTheDriverDoesNotTell) {
  MemoryMonitor monitor;
  monitor.Add(Report(1, 30, 40), std::nullopt, 64 * kGiB);
  EXPECT_FALSE(monitor.state().outside_allocator_bytes);
  EXPECT_FALSE(monitor.state().safe_allocation_bytes);
}

TEST(MemoryMonitor, TellsFragmentationOnce) {
  MemoryMonitor monitor;
  EXPECT_THAT(monitor.Add(Report(1, 30, 40), {}, {}), IsEmpty()) << "still warming up";
  EXPECT_THAT(monitor.Add(Report(3, 30, 40), {}, {}),
              ElementsAre(Field(&Finding::kind, FindingKind::kFragmentation)));
  EXPECT_THAT(monitor.Add(Report(4, 30, 40), {}, {}), IsEmpty());
}

TEST(MemoryMonitor, TellsALeakWithItsRate) {
  MemoryMonitor monitor;
  std::vector<Finding> findings;
  for (int64_t step = 1; step <= 200 && findings.empty(); ++step) {
    AllocatorReport report{step, 20 * kGiB + step * 64 * kMiB, 40 * kGiB, 39 * kGiB, 0, 0};
    findings = monitor.Add(report, {}, {});
  }
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, FindingKind::kLeak);
  EXPECT_THAT(findings[0].message, ContainsRegex("6[34][.][0-9]+ MiB a step"));
}

TEST(MemoryMonitor, TellsRetriesAndFailuresWhenTheyCount) {
  MemoryMonitor monitor;
  AllocatorReport report = Report(1, 39, 40);
  EXPECT_THAT(monitor.Add(report, {}, {}), IsEmpty());
  report.step = 2;
  report.alloc_retries = 2;
  report.ooms = 1;
  EXPECT_THAT(monitor.Add(report, {}, {}),
              ElementsAre(Field(&Finding::kind, FindingKind::kRetries),
                          Field(&Finding::kind, FindingKind::kOutOfMemory)));
}

TEST(MemoryMonitor, TellsAnIdleCacheOnlyWhenItStays) {
  MemoryMonitor monitor;
  AllocatorReport report{0, 35 * kGiB, 40 * kGiB, 40 * kGiB, 0, 0};
  monitor.Add(report, {}, {});  // the peak uses it all
  report.active_bytes = 35 * kGiB;
  for (report.step = 1; report.step < 50; ++report.step) {
    EXPECT_THAT(monitor.Add(report, {}, {}), IsEmpty());
  }
  for (int i = 0; i < 3; ++i, ++report.step) {
    for (const Finding& finding : monitor.Add(report, {}, {})) {
      EXPECT_EQ(finding.kind, FindingKind::kIdleCache);
      return;
    }
  }
  FAIL() << "an idle cache was not told";
}

}  // namespace
}  // namespace hbmtune

#include "kernels/memory/rounding.h"

#include <gtest/gtest.h>

#include "kernels/core/units.h"

namespace hbmtune::memory {
namespace {

AllocatorConfig Divisions(int64_t divisions) {
  AllocatorConfig config;
  config.roundup_power2_divisions = {divisions};
  return config;
}

TEST(RoundRequest, GivesMultiplesOf512) {
  AllocatorConfig config;
  EXPECT_EQ(RoundRequest(1, config), 512);
  EXPECT_EQ(RoundRequest(512, config), 512);
  EXPECT_EQ(RoundRequest(513, config), 1024);
  EXPECT_EQ(RoundRequest(1048577, config), 1049088);
}

TEST(RoundRequest, RoundsToDivisionsBetweenPowersOfTwo) {
  // 5.1 MiB with 4 divisions: 4, 5, 6, 7, 8.
  EXPECT_EQ(RoundRequest(5347737, Divisions(4)), 6 * kMiB);
  EXPECT_EQ(RoundRequest(4 * kMiB, Divisions(4)), 4 * kMiB);
  EXPECT_EQ(RoundRequest(4 * kMiB + 1, Divisions(4)), 5 * kMiB);
  EXPECT_EQ(RoundRequest(7 * kMiB + 1, Divisions(4)), 8 * kMiB);
}

TEST(RoundRequest, LeavesRequestsUpTo512TimesDivisionsToOrdinaryRounding) {
  // The comment in PyTorch's source says 1280 for this one; its code says 1536.
  EXPECT_EQ(RoundRequest(1200, Divisions(4)), 1536);
  EXPECT_EQ(RoundRequest(2048, Divisions(4)), 2048);
  EXPECT_EQ(RoundRequest(2049, Divisions(4)), 2560);
}

TEST(RoundRequest, OneDivisionMeansNone) {
  EXPECT_EQ(RoundRequest(3 * kMiB + 1, Divisions(1)), 3 * kMiB + 512);
}

TEST(RoundRequest, TakesTheSlotOfTheRequestsPowerOfTwo) {
  AllocatorConfig config = AllocatorConfig::Parse("roundup_power2_divisions:[4:8,8:2,>:1]");
  EXPECT_EQ(RoundRequest(2 * kMiB + 1, config), 2 * kMiB + 256 * kKiB);  // 8: filled from the first
  EXPECT_EQ(RoundRequest(4 * kMiB + 1, config), 4 * kMiB + 512 * kKiB);  // 8
  EXPECT_EQ(RoundRequest(16 * kMiB + 1, config), 16 * kMiB + 512);       // 1: none
}

TEST(SegmentBytes, FollowsTheThreeSizes) {
  AllocatorConfig config;
  EXPECT_EQ(SegmentBytesFor(512, config), 2 * kMiB);
  EXPECT_EQ(SegmentBytesFor(kMiB, config), 2 * kMiB);
  EXPECT_EQ(SegmentBytesFor(kMiB + 512, config), 20 * kMiB);
  EXPECT_EQ(SegmentBytesFor(10 * kMiB - 512, config), 20 * kMiB);
  EXPECT_EQ(SegmentBytesFor(10 * kMiB, config), 10 * kMiB);
  EXPECT_EQ(SegmentBytesFor(10 * kMiB + 512, config), 12 * kMiB);
}

TEST(RoundPinned, GivesPowersOfTwoUpToTheThreshold) {
  AllocatorConfig config;
  // 2.25 GiB became 4.0 GiB in a published measurement.
  EXPECT_EQ(RoundPinned(9 * kGiB / 4, config), 4 * kGiB);
  config.pinned_max_round_bytes = kGiB;
  EXPECT_EQ(RoundPinned(9 * kGiB / 4, config), 9 * kGiB / 4);
}

}  // namespace
}  // namespace hbmtune::memory

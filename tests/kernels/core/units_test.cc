#include "kernels/core/units.h"

#include <gtest/gtest.h>

namespace hbmtune {
namespace {

TEST(Units, ParsesSizes) {
  EXPECT_EQ(ParseBytes("1GiB"), kGiB);
  EXPECT_EQ(ParseBytes("512 MiB"), 512 * kMiB);
  EXPECT_EQ(ParseBytes("1.5g"), kGiB * 3 / 2);
  EXPECT_EQ(ParseBytes("2GB"), 2'000'000'000);
  EXPECT_EQ(ParseBytes("1048576"), kMiB);
}

TEST(Units, RefusesWhatIsNoSize) {
  EXPECT_FALSE(ParseBytes(""));
  EXPECT_FALSE(ParseBytes("-1GiB"));
  EXPECT_FALSE(ParseBytes("1 parsec"));
  EXPECT_FALSE(ParseBytes("9999999999TiB"));
}

TEST(Units, ParsesTimes) {
  EXPECT_DOUBLE_EQ(*ParseSeconds("60s"), 60);
  EXPECT_DOUBLE_EQ(*ParseSeconds("1.5m"), 90);
  EXPECT_DOUBLE_EQ(*ParseSeconds("90"), 90);
  EXPECT_FALSE(ParseSeconds("soon"));
}

TEST(Units, PrintsForPeople) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(kGiB * 64), "64.00 GiB");
}

}  // namespace
}  // namespace hbmtune

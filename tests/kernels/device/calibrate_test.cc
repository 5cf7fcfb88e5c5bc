#include "kernels/device/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/device/profile_text.h"

namespace hbmtune::device {
namespace {

TEST(ProfileText, IsReadBackAsItWas) {
  for (const std::string& name : ProfileNames()) {
    DeviceProfile profile = *FindProfile(name);
    profile.title += " \"quoted\" \\";
    profile.matmul_points.push_back({Dtype::kBf16, 64, 128, 256, 1.5e11});
    const auto read = ParseProfile(ProfileText(profile, "a heading"));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->title, profile.title);
    EXPECT_EQ(read->matmul_points.size(), profile.matmul_points.size());
    EXPECT_EQ(read->matmul_points.back().n, 128);
    EXPECT_NEAR(read->capacity_bytes.value, profile.capacity_bytes.value,
                1e-5 * profile.capacity_bytes.value);
    EXPECT_EQ(CountFigures(*read).measured, CountFigures(profile).measured);
    EXPECT_EQ(CountFigures(*read).unknown, CountFigures(profile).unknown);
  }
}

// Without time for products: the least that a profile can stand on. How fast the machine is, no
// test can know.
TEST(CalibrateHost, MeasuresWhatItSaysAndTellsHowFarItIs) {
  std::vector<double> ratios;
  const DeviceProfile profile = CalibrateHost(
      *FindProfile("host"), {.threads = 1, .budget_seconds = 0, .date = "2026-11-29"},
      [&](double ratio, const std::string& what) {
        EXPECT_FALSE(what.empty());
        ratios.push_back(ratio);
      });
  ASSERT_GT(ratios.size(), 3U);
  for (size_t i = 1; i < ratios.size(); ++i) EXPECT_GE(ratios[i], ratios[i - 1]);
  EXPECT_EQ(ratios.back(), 1);
  EXPECT_TRUE(profile.is_host());
  EXPECT_EQ(profile.compute_units.value, 1);
  for (const Figure* figure :
       {&profile.fp32_flops_per_second, &profile.half_flops_per_second,
        &profile.attention_efficiency_ratio, &profile.memory_bytes_per_second,
        &profile.memory_efficiency_ratio, &profile.kernel_seconds, &profile.segment_seconds,
        &profile.copy_seconds, &profile.collective_seconds,
        &profile.collective_bytes_per_second, &profile.cpu_adam_parameters_per_second}) {
    EXPECT_EQ(figure->kind, FigureKind::kMeasured);
    EXPECT_GT(figure->value, 0);
    EXPECT_NE(figure->source.find("2026-11-29"), std::string::npos);
    EXPECT_NE(figure->source.find("1 thread"), std::string::npos);
  }
  EXPECT_EQ(profile.matmul_points.size(), 3U);  // one shape of each element type
  EXPECT_TRUE(ParseProfile(ProfileText(profile, "")).ok());
}

}  // namespace
}  // namespace hbmtune::device

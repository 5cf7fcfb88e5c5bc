#include "kernels/device/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/device/profile_text.h"

namespace hbmtune::device {
namespace {

TEST(ProfileText, IsReadBackAsItWas) {
  for (const std::string& name : ProfileNames()) {
    DeviceProfile profile = *FindProfile(name);
    profile.title += " \"quoted\" \\";
    profile.op_points.push_back({"linear", Dtype::kBf16, 64, 128, 256, 1.5e11, 1e-3});
    profile.op_points.push_back({"add", Dtype::kF16, 0, 0, 0, 4096, 1e-6});
    const auto read = ParseProfile(ProfileText(profile, "a heading"));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->title, profile.title);
    EXPECT_EQ(read->op_points.size(), profile.op_points.size());
    EXPECT_EQ(read->op_points[profile.op_points.size() - 2].n, 128);
    EXPECT_EQ(read->op_points.back().work, 4096);
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
  std::set<std::pair<std::string, Dtype>> calls;
  for (const OpPoint& point : profile.op_points) calls.emplace(point.op, point.dtype);
  for (Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    for (const char* op : {"linear", "linear_backward_input", "linear_backward_weight",
                           "attention_tiled", "attention_tiled_backward", "rms_norm",
                           "layer_norm_backward", "cross_entropy", "adamw"}) {
      EXPECT_TRUE(calls.contains({op, dtype})) << op << " " << Name(dtype);
    }
  }
  EXPECT_TRUE(ParseProfile(ProfileText(profile, "")).ok());
}

}  // namespace
}  // namespace hbmtune::device

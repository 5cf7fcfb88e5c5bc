#include "kernels/device/profile.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/units.h"

namespace hbmtune::device {
namespace {

using ::testing::HasSubstr;

DeviceProfile Get(std::string_view name) {
  auto profile = FindProfile(name);
  EXPECT_TRUE(profile.ok()) << profile.status();
  return profile.value_or(DeviceProfile{});
}

TEST(DeviceProfile, EveryEmbeddedProfileParsesUnderItsOwnName) {
  auto names = ProfileNames();
  EXPECT_THAT(names, testing::UnorderedElementsAre("host", "a100-80g", "h100-80g", "mi210",
                                                   "mi250x", "mi300x", "mi325x", "mi355x"));
  EXPECT_EQ(names.front(), "host");
  for (const std::string& name : names) EXPECT_EQ(Get(name).name, name);
}

TEST(DeviceProfile, EmbedsEveryFileOfTheFolder) {
  size_t files = 0;
  std::filesystem::path folder =
      std::filesystem::path(HBMTUNE_TEST_DATA) / "../../kernels/device/profiles";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".toml") ++files;
  }
  EXPECT_EQ(files, ProfileNames().size());
}

TEST(DeviceProfile, EveryFigureOfAGpuCitesASourceAndTheRatesAreThere) {
  for (const std::string& name : ProfileNames()) {
    DeviceProfile profile = Get(name);
    DeviceProfile::VisitFigures(profile, [&](const Field& field, const Figure& figure) {
      EXPECT_FALSE(figure.source.empty()) << name << " " << field.name;
    });
    for (const Figure* figure :
         {&profile.compute_units, &profile.fp32_flops_per_second, &profile.half_flops_per_second,
          &profile.memory_bytes_per_second, &profile.issue_seconds}) {
      EXPECT_GT(figure->value, 0) << name;
    }
  }
}

TEST(DeviceProfile, CountsFiguresByKind) {
  DeviceProfile mi210 = Get("mi210");
  FigureCounts counts = CountFigures(mi210);
  int64_t all = 0;
  DeviceProfile::VisitFigures(mi210, [&](const Field&, const Figure&) { ++all; });
  EXPECT_EQ(counts.unknown + counts.datasheet + counts.measured + counts.derived, all);
  EXPECT_EQ(counts.datasheet, 4);  // compute units, two peaks, bandwidth
  EXPECT_EQ(counts.measured, 1);   // the capacity
  mi210.op_points.resize(3);
  EXPECT_EQ(CountFigures(mi210).measured, 4);
}

TEST(DeviceProfile, SeesMi210AsRocmDoes) {
  EXPECT_EQ(FormatBytes(static_cast<int64_t>(Get("mi210").capacity_bytes.value)), "63.98 GiB");
  EXPECT_EQ(Get("mi210").workspace_bytes(), 76 * kMiB);
  EXPECT_EQ(Get("mi210").library_bytes(1), 140 * kMiB);
  EXPECT_EQ(Get("mi210").library_bytes(2), (140 + 32 * 8) * kMiB);
  EXPECT_EQ(Get("mi250x").library_bytes(8), 140 * kMiB + kGiB);
}

TEST(DeviceProfile, SuggestsTheNearestName) {
  auto missing = FindProfile("mi21O");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("did you mean mi210?"));
}

TEST(DeviceProfile, PutsACalibratedFileBeforeTheEmbeddedOne) {
  auto folder = std::filesystem::temp_directory_path() / "hbmtune_profile_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "host.toml") << "name = \"host\"\ntitle = \"calibrated\"\n";
  auto profile = FindProfile("host", folder.string());
  EXPECT_THAT(std::string(profile.status().message()), HasSubstr("has no source"));
  EXPECT_TRUE(FindProfile("mi210", folder.string()).ok());
  std::filesystem::remove_all(folder);
}

TEST(DeviceProfile, RefusesAFigureWithoutItsKindAndAnUnknownField) {
  EXPECT_THAT(std::string(ParseProfile("[capacity_bytes]\nvalue = 1\nsource = \"x\"\n")
                              .status().message()),
              HasSubstr("capacity_bytes is unknown but has a value"));
  EXPECT_THAT(std::string(ParseProfile("[capacity]\nvalue = 1\n").status().message()),
              HasSubstr("capacity: unknown field"));
  EXPECT_THAT(std::string(ParseProfile("name = \n").status().message()), HasSubstr("line 1"));
}

Cost Product(int64_t m, int64_t n, int64_t k) {
  Cost cost;
  cost.kind = CostClass::kMatmul;
  cost.flops = 2.0 * m * n * k;
  cost.bytes_read = 2.0 * (m * k + n * k);
  cost.bytes_written = 2.0 * m * n;
  cost.m = m, cost.n = n, cost.k = k;
  return cost;
}

TEST(KernelSeconds, LargeProductsReachTheStatedShareOfThePeak) {
  DeviceProfile mi210 = Get("mi210");
  Cost cost = Product(8192, 13312, 8192);  // 64 × 104 tiles: 64 full waves
  double seconds = KernelSeconds(mi210, "", cost, Dtype::kBf16);
  EXPECT_NEAR(cost.flops / seconds / 181e12, 0.65, 1e-9);
}

TEST(KernelSeconds, AProductOfOneTileUsesOneComputeUnit) {
  DeviceProfile mi210 = Get("mi210");
  Cost cost = Product(128, 128, 1 << 16);
  double seconds = KernelSeconds(mi210, "", cost, Dtype::kBf16);
  EXPECT_NEAR(cost.flops / seconds, 181e12 * 0.65 / 104, 1e6);
}

TEST(KernelSeconds, GoesBetweenTheMeasuredCallsOfItsOp) {
  DeviceProfile host = Get("host");
  auto point = [](const char* op, int64_t side, double rate) {
    const double flops = 2.0 * static_cast<double>(side * side * side);
    return OpPoint{op, Dtype::kF32, side, side, side, flops, flops / rate};
  };
  host.op_points = {point("linear", 64, 1e9), point("linear", 1024, 5e10),
                    point("linear_backward_input", 256, 1e12)};
  auto rate = [&](int64_t side, std::string_view op = "linear") {
    const Cost cost = Product(side, side, side);
    return cost.flops / KernelSeconds(host, op, cost, Dtype::kF32);
  };
  EXPECT_NEAR(rate(1024), 5e10, 1e6);
  EXPECT_NEAR(rate(256), std::sqrt(1e9 * 5e10), 1e6);  // the middle, in logarithms
  EXPECT_NEAR(rate(900), 5e10, 1e8);
  EXPECT_LT(rate(1 << 20), 5e10);
  EXPECT_GT(rate(1 << 20), 1e10);
  EXPECT_NEAR(rate(100, "linear_backward_input"), 1e12, 1e6);
  const Cost cost = Product(256, 256, 256);
  EXPECT_EQ(KernelSeconds(host, "linear", cost, Dtype::kBf16),
            KernelSeconds(host, "", cost, Dtype::kBf16));  // not measured
}

TEST(KernelSeconds, MemoryBoundWorkTakesItsTraffic) {
  DeviceProfile mi210 = Get("mi210");
  Cost cost;
  cost.bytes_read = 1e9;
  cost.bytes_written = 1e9;
  EXPECT_DOUBLE_EQ(KernelSeconds(mi210, "", cost, Dtype::kF32), 2e9 / (1.6384e12 * 0.82));
  cost.bytes_read = cost.bytes_written = 4;
  EXPECT_DOUBLE_EQ(KernelSeconds(mi210, "", cost, Dtype::kF32), 3e-6);
}

}  // namespace
}  // namespace hbmtune::device

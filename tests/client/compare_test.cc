#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>

#include "client/compare_devices.h"
#include "client/compare_report.h"
#include "client/text.h"

namespace hbmtune::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

ComparedDeviceOutput Device(const std::string& name, double tokens_per_second,
                            int64_t micro_batch) {
  ComparedDeviceOutput device;
  device.device = "model:" + name;
  device.product = "AMD Instinct " + name;
  device.train_config = TrainConfig{};
  device.train_config->micro_batch = micro_batch;
  device.estimate = Estimate{};
  device.estimate->interval = {-0.03, 0.05};
  device.evidence = Evidence::kPredicted;
  device.tokens_per_second = tokens_per_second;
  device.peak_reserved_bytes = 50 * kGiB;
  device.peak_used_bytes = 48 * kGiB;
  device.capacity_bytes = 64 * kGiB;
  device.margin_bytes = 16 * kGiB;
  device.limited_by = micro_batch > 10 ? "compute" : "memory";
  return device;
}

ComparedDeviceOutput TooSmall() {
  ComparedDeviceOutput device;
  device.device = "model:mi250x";
  device.product = "AMD Instinct MI250X, one GCD";
  device.message = "does not fit: the least takes 70.00 GiB, 9.22 GiB too much";
  device.shortfall = ShortfallOutput{};
  return device;
}

CompareOutput Example() {
  CompareOutput output;
  output.workload.model.name = "llama2-13b";
  output.workload.framework = Framework::kHfSdpaDeepspeed;
  output.devices = {Device("mi210", 1000, 8), TooSmall(), Device("mi300x", 3000, 40)};
  return output;
}

std::string Shown(const CompareOutput& output) {
  std::FILE* file = std::tmpfile();
  Terminal terminal(file);
  PrintComparison(terminal, output);
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

TEST(Compare, WithoutPricesTheOrderIsBySpeedAndWhatDoesNotFitComesLast) {
  CompareOutput output = Example();
  Rank(output);
  EXPECT_EQ(output.devices[0].device, "model:mi300x");
  EXPECT_EQ(output.devices[1].device, "model:mi210");
  EXPECT_EQ(output.devices[2].device, "model:mi250x");
  EXPECT_EQ(output.fastest, "model:mi300x");
  EXPECT_EQ(output.cheapest, "");
  EXPECT_DOUBLE_EQ(output.devices[1].relative_ratio, 1.0 / 3);
  EXPECT_FALSE(output.devices[0].dollars_per_million_tokens);
}

TEST(Compare, WithPricesTheOrderIsByDollarsATokenAndAllRanksArePaidFor) {
  CompareOutput output = Example();
  output.workload.world_size = 8;
  output.devices[0].dollars_per_hour = 0.9;   // 1,000 tok/s
  output.devices[2].dollars_per_hour = 3.6;   // 3,000 tok/s
  Rank(output);
  EXPECT_EQ(output.devices[0].device, "model:mi210");
  EXPECT_DOUBLE_EQ(*output.devices[0].dollars_per_million_tokens, 8 * 0.25);
  EXPECT_DOUBLE_EQ(*output.devices[1].dollars_per_million_tokens, 8.0 / 3);
  EXPECT_EQ(output.cheapest, "model:mi210");
  EXPECT_EQ(output.fastest, "model:mi300x");
}

TEST(Compare, TheTableSaysWhichDeviceWhyAndThatNothingRan) {
  CompareOutput output = Example();
  output.devices[0].dollars_per_hour = 0.9;
  Rank(output);
  const std::string text = Shown(output);
  EXPECT_THAT(text, HasSubstr("device  tok/s  of best  peak reserved         of  margin  $/M"));
  EXPECT_THAT(text, HasSubstr("mi210   1,000     33 %      50.00 GiB  64.00 GiB    25 %"));
  EXPECT_THAT(text, HasSubstr("\n  micro-batch 40\n"));
  EXPECT_THAT(text, HasSubstr("on each: accumulation 1, no checkpointing, fp32"));
  EXPECT_THAT(text, HasSubstr("mi250x  does not fit: the least takes 70.00 GiB"));
  EXPECT_THAT(text, HasSubstr("mi300x is fastest: 3,000 tok/s, 3.00 times mi210."));
  EXPECT_THAT(text, HasSubstr("mi210 is cheapest: $0.25 a\nmillion tokens."));
  EXPECT_THAT(text, HasSubstr("memory: mi210; compute: mi300x"));
  EXPECT_THAT(text, HasSubstr("mi250x is AMD Instinct MI250X, one GCD"));
  EXPECT_THAT(text, HasSubstr("PREDICTED (peak −3 %…+5 %)"));
  EXPECT_THAT(text, HasSubstr("nothing ran on a GPU"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(DisplayWidth(line), 80u) << line;
}

TEST(Compare, WhereNothingFitsNoDeviceIsChosen) {
  CompareOutput output = Example();
  output.devices = {TooSmall()};
  Rank(output);
  EXPECT_EQ(output.fastest, "");
  EXPECT_THAT(Shown(output), Not(HasSubstr("fastest")));
}

Profiles SomeProfiles() {
  Profiles profiles;
  for (const char* name : {"model:host", "model:mi210", "model:mi250x", "model:mi300x"}) {
    profiles[name].set_name(name);
  }
  return profiles;
}

TEST(CompareDevices, WithoutNamesEveryGpuIsChosen) {
  auto chosen = Choose({}, SomeProfiles());
  ASSERT_TRUE(chosen.ok());
  ASSERT_EQ(chosen->size(), 3u);
  EXPECT_EQ(chosen->front().device.name(), "model:mi210");
}

TEST(CompareDevices, NamesMayBeShortAndCountOnce) {
  auto chosen = Choose({"mi300x", "model:mi210", "model:mi300x"}, SomeProfiles());
  ASSERT_TRUE(chosen.ok());
  ASSERT_EQ(chosen->size(), 2u);
  EXPECT_EQ(chosen->front().device.name(), "model:mi300x");
  EXPECT_EQ(Choose({"mi30x"}, SomeProfiles()).status(),
            absl::InvalidArgumentError("--device: there is no profile 'mi30x' (did you mean "
                                       "mi300x?); there are host, mi210, mi250x and mi300x"));
}

TEST(CompareDevices, PricesAreOfDevicesThatAreCompared) {
  auto chosen = *Choose({}, SomeProfiles());
  ASSERT_TRUE(SetPrices({"mi210=1.5", "model:mi300x=2"}, chosen).ok());
  EXPECT_EQ(chosen[0].dollars_per_hour, 1.5);
  EXPECT_EQ(chosen[1].dollars_per_hour, std::nullopt);
  EXPECT_EQ(chosen[2].dollars_per_hour, 2.0);
  for (const auto& [price, words] : std::map<std::string, std::string>{
           {"mi210", "is not NAME=DOLLARS"}, {"=2", "is not NAME=DOLLARS"},
           {"mi210=0", "not dollars an hour, over 0"}, {"mi210=-1", "not dollars"},
           {"mi210=much", "not dollars"}, {"mi355x=2", "is not compared"},
           {"mi210=3", "has two prices"}}) {
    EXPECT_THAT(std::string(SetPrices({price}, chosen).message()), HasSubstr(words)) << price;
  }
}

}  // namespace
}  // namespace hbmtune::client

#include "tuner/search/designer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernels/core/json.h"
#include "tests/tuner/fake_device.h"
#include "tests/tuner/workloads.h"

namespace hbmtune::tuner {
namespace {

using ::testing::HasSubstr;

Space HostSpace(const Pins& pins = {}, int64_t global_batch = 0) {
  Workload workload = MakeWorkload(Framework::kFused, "tiny-llama", 1, global_batch);
  absl::StatusOr<Space> space = Space::Create(workload, DeviceFacts{true}, pins);
  EXPECT_TRUE(space.ok()) << space.status();
  return *std::move(space);
}

std::unique_ptr<Designer> Make(const std::string& name, const Space& space, Estimator estimator,
                               const DesignerOptions& options = {}) {
  absl::StatusOr<std::unique_ptr<Designer>> designer =
      MakeDesigner(name, space, std::move(estimator), options);
  EXPECT_TRUE(designer.ok()) << designer.status();
  return *std::move(designer);
}

std::string Dump(const std::optional<TrainConfig>& config) {
  return config ? ToJson(*config).dump() : "nothing";
}

class AnyDesigner : public testing::TestWithParam<std::string> {};

// A new designer that is shown half a history goes on as the old one did: what a restart needs.
TEST_P(AnyDesigner, IsAFunctionOfTheHistory) {
  FakeDevice device;
  Space space = HostSpace({{"micro_batch", Json{{"max", 64}}}});
  DesignerOptions options{.seed = 3, .budget_trials = 30};
  History history = RunStudy(*Make(GetParam(), space, device.AsEstimator(), options), device,
                             &device);
  ASSERT_GT(history.size(), 3u);
  for (size_t done = 0; done < history.size(); ++done) {
    History part(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(done));
    Decision decision = Make(GetParam(), space, device.AsEstimator(), options)->Next(part);
    EXPECT_EQ(Dump(decision.config), Dump(history[done].config)) << done;
    EXPECT_FALSE(decision.why.empty());
  }
}

TEST_P(AnyDesigner, TriesNoConfigTwiceAndNoneOutsideTheSpace) {
  FakeDevice device;
  Space space = HostSpace();
  History history = RunStudy(*Make(GetParam(), space, device.AsEstimator(), {.budget_trials = 60}),
                             device, &device);
  std::set<std::string> seen;
  for (const Trial& trial : history) {
    EXPECT_TRUE(space.Contains(trial.config));
    EXPECT_TRUE(seen.insert(Dump(trial.config)).second) << Dump(trial.config);
  }
}

TEST_P(AnyDesigner, NeverTriesWhatAnOutOfMemoryTrialRulesOut) {
  FakeDevice device;
  History history =
      RunStudy(*Make(GetParam(), HostSpace(), {}, {.budget_trials = 60}), device, nullptr);
  for (size_t i = 0; i < history.size(); ++i) {
    for (size_t earlier = 0; earlier < i; ++earlier) {
      if (RanOutOfMemory(history[earlier])) {
        EXPECT_FALSE(RulesOut(history[earlier].config, history[i].config)) << earlier << " " << i;
      }
    }
  }
}

TEST_P(AnyDesigner, StopsAtItsBudget) {
  FakeDevice device;
  auto designer = Make(GetParam(), HostSpace(), device.AsEstimator(), {.budget_trials = 2});
  History history = RunStudy(*designer, device, &device);
  EXPECT_EQ(history.size(), 2u);
  EXPECT_THAT(designer->Next(history).why, HasSubstr("budget of 2 trials"));
  designer = Make(GetParam(), HostSpace(), device.AsEstimator(), {.budget_seconds = 5});
  history = RunStudy(*designer, device, &device);
  EXPECT_THAT(designer->Next(history).why, HasSubstr("5 s"));
}

TEST_P(AnyDesigner, StopsWhenTheDeviceFailsThreeTimesInARow) {
  FakeDevice device;
  auto designer = Make(GetParam(), HostSpace(), device.AsEstimator());
  History history;
  while (history.size() < 10) {
    Decision decision = designer->Next(history);
    if (!decision.config) break;
    history.push_back(RunTrial(*decision.config, device, &device));
    history.back().measurement->outcome = Outcome::kDeviceLost;
  }
  EXPECT_EQ(history.size(), 3u);
  EXPECT_THAT(designer->Next(history).why, HasSubstr("3 trials failed"));
}

INSTANTIATE_TEST_SUITE_P(All, AnyDesigner, testing::ValuesIn(DesignerNames()),
                         [](const auto& info) { return info.param; });

TEST_P(AnyDesigner, CountsItsOwnTimeAndEndsWhenCancelled) {
  FakeDevice device;
  device.fixed_bytes = 10;
  double seconds = 0;
  auto estimator = [&](const TrainConfig& config) -> absl::StatusOr<Estimate> {
    seconds += 0.1;
    return device.Estimated(config);
  };
  DesignerOptions options{.budget_seconds = 1, .modelled = true};
  options.search_seconds = [&] { return seconds; };
  auto designer = Make(GetParam(), HostSpace(), estimator, options);
  History history;
  while (auto config = designer->Next(history).config) {
    history.push_back({*config, device.Estimated(*config), std::nullopt});
  }
  EXPECT_LT(seconds, 1.15);
  EXPECT_GE(history.size(), 1u);
  EXPECT_THAT(designer->Next(history).why, HasSubstr("budget of 1 s"));
  options.cancelled = [] { return true; };
  EXPECT_FALSE(Make(GetParam(), HostSpace(), estimator, options)->Next({}).config);
}

TEST(MakeDesigner, NamesTheDesignersThereAre) {
  absl::Status status = MakeDesigner("brackett", HostSpace(), {}, {}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("bracket, grid or random"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean bracket?"));
}

TEST(Grid, VisitsTheWholeSpaceWhereEverythingFits) {
  FakeDevice device;
  device.capacity_bytes = 1'000'000'000;
  Space space = HostSpace({{"checkpoint.every", Json{0, 1}}, {"checkpoint.attention", 0},
                           {"checkpoint.mlp", 0}},
                          8);
  History history = RunStudy(*Make("grid", space, {}), device, nullptr);
  EXPECT_EQ(static_cast<int64_t>(history.size()), space.Count());
}

TEST(Random, DependsOnItsSeed) {
  FakeDevice device;
  auto first = [&](uint64_t seed) {
    return Dump(Make("random", HostSpace(), {}, {.seed = seed})->Next({}).config);
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST(Bracket, WaitsForARunningTrial) {
  FakeDevice device;
  auto designer = Make("bracket", HostSpace(), device.AsEstimator());
  History history = {RunTrial(*designer->Next({}).config, device, &device)};
  history.back().finished = false;
  history.back().measurement.reset();
  EXPECT_TRUE(Designer::IsWait(designer->Next(history)));
  history = {RunTrial(history.back().config, device, &device)};
  EXPECT_TRUE(designer->Next(history).config.has_value());
}

}  // namespace
}  // namespace hbmtune::tuner

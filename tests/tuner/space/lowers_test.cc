#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/lowering/hf.h"
#include "tests/kernels/lowering/small_models.h"
#include "tests/tuner/workloads.h"
#include "tuner/space/space.h"

// Whatever the space of a Transformers framework holds, its lowering takes or refuses with a
// sentence; nothing else is thrown.
namespace hbmtune::tuner {
namespace {

constexpr int kDrawn = 60;  // configs a space, beside its settings

// All settings, and configs drawn with their refining axes.
std::vector<TrainConfig> Some(const Space& space) {
  std::vector<TrainConfig> configs = space.Settings();
  std::mt19937_64 random(7);
  for (int i = 0; i < kDrawn; ++i) {
    if (auto config = space.Sample(random)) configs.push_back(*config);
  }
  for (TrainConfig& config : configs) {
    config.micro_batch = 1;
    config.grad_accum = std::min<int64_t>(config.grad_accum, 2);
  }
  return configs;
}

struct Tally {
  int lowered = 0;
  std::set<std::string> refusals;
};

void LowerAll(Framework framework, const std::string& model, int64_t ranks, Tally& tally) {
  Workload workload = testing::SmallWorkload(model);
  workload.framework = framework;
  workload.world_size = ranks;
  workload.global_batch = 2 * ranks;
  workload.model.layers = 2;
  workload.seq_len = 8;
  auto space = Space::Create(workload, DeviceFacts{});
  ASSERT_TRUE(space.ok()) << space.status();
  lowering::HfOptions options;
  options.rank = ranks - 1;
  for (const TrainConfig& config : Some(*space)) {
    try {
      EXPECT_FALSE(lowering::LowerHf(workload, config, options).code.empty());
      ++tally.lowered;
    } catch (const std::invalid_argument& refusal) {
      tally.refusals.insert(refusal.what());
    } catch (const std::exception& error) {
      ADD_FAILURE() << model << " on " << ranks << ": " << error.what() << "\n" << ToJson(config);
    }
  }
}

class HfFramework : public ::testing::TestWithParam<Framework> {};

TEST_P(HfFramework, LowersWhatItsSpaceHolds) {
  Tally tally;
  for (const char* model : {"llama", "llama_lora", "falcon", "gpt2"}) {
    for (int64_t ranks : {1, 2, 3, 8}) {
      if (ranks > 1 && RunsOnOneRankOnly(GetParam())) continue;
      LowerAll(GetParam(), model, ranks, tally);
    }
  }
  std::cout << tally.lowered << " configs lowered\n";
  for (const std::string& refusal : tally.refusals) std::cout << "refused: " << refusal << "\n";
  EXPECT_GE(tally.lowered, 100);
}

INSTANTIATE_TEST_SUITE_P(All, HfFramework,
                         ::testing::Values(Framework::kHfEager, Framework::kHfSdpa,
                                           Framework::kHfEagerDdp, Framework::kHfSdpaDdp,
                                           Framework::kHfEagerDeepspeed,
                                           Framework::kHfSdpaDeepspeed),
                         [](const auto& info) {
                           std::string name(Name(info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

}  // namespace
}  // namespace hbmtune::tuner

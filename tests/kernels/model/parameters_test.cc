#include "kernels/model/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "kernels/model/model_config.h"
#include "kernels/model/presets.h"

namespace hbmtune {
namespace {

using Named = std::vector<std::pair<std::string, std::vector<int64_t>>>;

// What tests/reference/record_models.py wrote.
nlohmann::json Recording(const std::string& name) {
  std::ifstream file(std::string(HBMTUNE_TEST_DATA) + "/models/" + name + ".json");
  EXPECT_TRUE(file) << name;
  return nlohmann::json::parse(file);
}

Named Plain(const std::vector<ParameterEntry>& table) {
  Named plain;
  for (const ParameterEntry& entry : table) {
    plain.emplace_back(entry.name, std::vector<int64_t>(entry.shape.begin(), entry.shape.end()));
  }
  return plain;
}

class RecordedModel : public testing::TestWithParam<std::string> {};

TEST_P(RecordedModel, HasTransformersNamesShapesAndOrder) {
  nlohmann::json recording = Recording(GetParam());
  ModelSpec spec = ParseModelConfig(recording["config"].dump(), GetParam());
  EXPECT_EQ(Plain(ParameterTable(spec)), recording["parameters"].get<Named>());
}

TEST_P(RecordedModel, HasPeftsAdapters) {
  nlohmann::json recording = Recording(GetParam());
  ModelSpec spec = ParseModelConfig(recording["config"].dump(), GetParam());
  LoraSpec lora;
  lora.rank = recording["lora"]["rank"];
  for (const char* targets : {"attention", "all-linear"}) {
    lora.targets = targets;
    EXPECT_EQ(Plain(LoraTable(spec, lora)), recording["lora"][targets].get<Named>()) << targets;
  }
}

std::vector<std::string> Recordings() {
  std::vector<std::string> names;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(HBMTUNE_TEST_DATA) + "/models")) {
    std::string name = file.path().stem();
    if (name != "preset_counts") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Variants, RecordedModel, testing::ValuesIn(Recordings()),
                         [](const auto& info) { return info.param; });

TEST(Presets, CountWhatIsPublished) {
  const std::map<std::string, int64_t> published = {
      {"llama2-7b", 6'738'415'616},   {"llama2-13b", 13'015'864'320},
      {"llama2-70b", 68'976'648'192}, {"llama3-8b", 8'030'261'248},
      {"llama3-70b", 70'553'706'496}, {"mistral-7b", 7'241'732'096},
      {"qwen2-7b", 7'615'616'512},    {"falcon-7b", 6'921'720'704},
      {"gpt2", 124'439'808},          {"gpt2-xl", 1'557'611'200}};
  for (const auto& [name, count] : published) {
    ASSERT_TRUE(FindPreset(name)) << name;
    EXPECT_EQ(ParameterCount(*FindPreset(name)), count) << name;
  }
}

TEST(Presets, CountWhatTransformersCounts) {
  auto counts = Recording("preset_counts")["counts"].get<std::map<std::string, int64_t>>();
  std::vector<std::string> names;
  for (const auto& [name, count] : counts) {
    names.push_back(name);
    EXPECT_EQ(ParameterCount(*FindPreset(name)), count) << name;
  }
  EXPECT_EQ(PresetNames(), names);
}

TEST(Presets, KnowNoOthers) { EXPECT_FALSE(FindPreset("llama4-7b")); }

TEST(Presets, ReadWhatTheirFilesSay) {
  ModelSpec mistral = *FindPreset("mistral-7b");
  EXPECT_EQ(mistral.sliding_window, 4096);
  EXPECT_EQ(mistral.kv_heads, 8);
  EXPECT_EQ(FindPreset("llama3-8b")->rope_theta, 500000);
  EXPECT_EQ(FindPreset("falcon-7b")->kv_heads, 1);
  EXPECT_TRUE(FindPreset("falcon-7b")->parallel_block);
  EXPECT_EQ(FindPreset("gpt2")->dropout, 0.1);
}

TEST(Lora, LeavesFullFineTuningWithoutAdapters) {
  EXPECT_TRUE(LoraTable(*FindPreset("gpt2"), LoraSpec{}).empty());
}

TEST(Lora, RejectsUnknownTargetsAndNegativeRanks) {
  LoraSpec lora;
  lora.rank = 4;
  lora.targets = "mlp";
  EXPECT_THROW(LoraTable(*FindPreset("gpt2"), lora), std::invalid_argument);
  lora = {.rank = -1};
  EXPECT_THROW(LoraTable(*FindPreset("gpt2"), lora), std::invalid_argument);
}

}  // namespace
}  // namespace hbmtune

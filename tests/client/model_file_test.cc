#include "client/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "client/presets.h"
#include "kernels/model/presets.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::client {
namespace {

class ModelFile : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::filesystem::path path = folder_.path() + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }

  hbmtune::testing::TempDir folder_;
};

TEST_F(ModelFile, AWordIsAPreset) {
  auto source = ReadModel("llama2-13b");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->preset(), "llama2-13b");
}

TEST_F(ModelFile, APathIsReadAndNamedAfterItsFolder) {
  auto source = ReadModel(Write("Llama-2-13b/config.json", "{\"hidden_size\": 8}"));
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->config_json(), "{\"hidden_size\": 8}");
  EXPECT_EQ(source->name(), "Llama-2-13b");
}

TEST_F(ModelFile, AFolderStandsForItsConfig) {
  Write("tiny/config.json", "{}");
  auto source = ReadModel(folder_.path() + "/tiny");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->config_json(), "{}");
  EXPECT_EQ(source->name(), "tiny");
}

TEST(KnownPresets, AreThoseOfTheDaemon) { EXPECT_EQ(KnownPresets(), PresetNames()); }

TEST(PresetLike, KnowsTheNamesOfHubs) {
  EXPECT_EQ(PresetLike("meta-llama/Llama-2-7b-hf"), "llama2-7b");
  EXPECT_EQ(PresetLike("meta-llama/Llama-2-70b-chat-hf"), "llama2-70b");
  EXPECT_EQ(PresetLike("meta-llama/Meta-Llama-3-8B-Instruct"), "llama3-8b");
  EXPECT_EQ(PresetLike("mistralai/Mistral-7B-v0.1"), "mistral-7b");
  EXPECT_EQ(PresetLike("Qwen/Qwen2-7B"), "qwen2-7b");
  EXPECT_EQ(PresetLike("tiiuae/falcon-7b"), "falcon-7b");
  EXPECT_EQ(PresetLike("openai-community/gpt2-xl"), "gpt2-xl");
  EXPECT_EQ(PresetLike("openai-community/gpt2"), "gpt2");
  EXPECT_EQ(PresetLike("google/gemma-2b"), "");
  EXPECT_EQ(PresetLike("Qwen/Qwen2-72B"), "");
}

TEST_F(ModelFile, AnotherFileIsNamedAfterItself) {
  EXPECT_EQ(ReadModel(Write("my-model.json", "{}"))->name(), "my-model");
}

TEST_F(ModelFile, AMissingFileNamesItsNearestNeighbour) {
  Write("config.json", "{}");
  std::string missing = folder_.path() + "/confg.json";
  absl::Status status = ReadModel(missing).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "no such file: " + missing + " (did you mean config.json?)");
}

TEST_F(ModelFile, AMissingFileInNoFolderIsStillOneSentence) {
  EXPECT_EQ(ReadModel("/nowhere/at/all/config.json").status().message(),
            "no such file: /nowhere/at/all/config.json");
}

TEST_F(ModelFile, WhatIsTooLargeIsNotSent) {
  std::string path = Write("model.safetensors.json", std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(ReadModel(path).status().message(),
            path + " has over 1.00 MiB, so no config.json");
}

TEST_F(ModelFile, WhatIsNoRegularFileIsNotRead) {
  std::string fifo = folder_.path() + "/config.json";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::create_directories(folder_.path() + "/model/config.json");
  for (const std::string& path :
       {fifo, std::string("/dev/zero"), folder_.path() + "/model"}) {
    absl::Status status = ReadModel(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("is no regular file"));
  }
}

TEST_F(ModelFile, WhatIsNotUtf8IsNotSent) {
  using std::string_literals::operator""s;
  for (const std::string& text : {"{\"a\": \"\xff\"}"s, "\xff\xfe{\0}\0"s, "{\0}\0"s}) {
    std::string path = Write("config.json", text);
    absl::Status status = ReadModel(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), path + " is not UTF-8 text, so no config.json");
  }
}

TEST_F(ModelFile, NoModelSaysWhatToGive) {
  EXPECT_THAT(std::string(ReadModel("").status().message()),
              ::testing::HasSubstr("--model is missing"));
}

}  // namespace
}  // namespace hbmtune::client

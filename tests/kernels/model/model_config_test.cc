#include "kernels/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace hbmtune {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json Llama() {
  return {{"model_type", "llama"},      {"hidden_size", 64},       {"num_hidden_layers", 2},
          {"num_attention_heads", 4},   {"intermediate_size", 96}, {"vocab_size", 128}};
}

json With(json config, const char* key, json value) {
  config[key] = std::move(value);
  return config;
}

json Without(json config, const char* key) {
  config.erase(key);
  return config;
}

ModelSpec Parse(const json& config) { return ParseModelConfig(config.dump(), "m"); }

std::string ErrorOf(const std::string& text) {
  try {
    ParseModelConfig(text, "m");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

std::string ErrorOf(const json& config) { return ErrorOf(config.dump()); }

TEST(ModelConfig, FillsInTransformersDefaults) {
  ModelSpec spec = Parse(Llama());
  EXPECT_EQ(spec.kv_heads, 4);
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_EQ(spec.max_positions, 2048);
  EXPECT_EQ(spec.norm_eps, 1e-6);
  EXPECT_EQ(spec.rope_theta, 10000);
  EXPECT_FALSE(spec.tied_embeddings);
  EXPECT_EQ(spec.sliding_window, 0);
}

TEST(ModelConfig, ReadsNullAsAbsent) {
  EXPECT_EQ(Parse(With(Llama(), "num_key_value_heads", nullptr)).kv_heads, 4);
  EXPECT_EQ(Parse(With(Llama(), "head_dim", nullptr)).head_dim, 16);
}

TEST(ModelConfig, ReadsRotaryBaseInBothLayouts) {
  EXPECT_EQ(Parse(With(Llama(), "rope_theta", 5e5)).rope_theta, 5e5);
  json rope = {{"rope_type", "llama3"}, {"rope_theta", 1e6}};
  EXPECT_EQ(Parse(With(Llama(), "rope_parameters", rope)).rope_theta, 1e6);
}

TEST(ModelConfig, ReadsMistralsWindow) {
  json mistral = With(With(Llama(), "model_type", "mistral"), "num_key_value_heads", 2);
  EXPECT_EQ(Parse(mistral).sliding_window, 4096);
  EXPECT_EQ(Parse(With(mistral, "sliding_window", nullptr)).sliding_window, 0);
  EXPECT_EQ(Parse(With(mistral, "sliding_window", 512)).sliding_window, 512);
}

TEST(ModelConfig, ReadsQwen2sWindow) {
  json qwen2 = With(With(Llama(), "model_type", "qwen2"), "num_key_value_heads", 2);
  qwen2["sliding_window"] = 512;
  EXPECT_EQ(Parse(qwen2).sliding_window, 0);
  qwen2["use_sliding_window"] = true;
  EXPECT_EQ(Parse(qwen2).sliding_window, 0);  // all layers come before max_window_layers, 28
  qwen2["max_window_layers"] = 0;
  EXPECT_EQ(Parse(qwen2).sliding_window, 512);
  qwen2["max_window_layers"] = 1;
  EXPECT_THAT(ErrorOf(qwen2), HasSubstr("sliding_window in 1 of its 2 layers"));
}

TEST(ModelConfig, ReadsFalconFromBeforeTransformersHadIt) {
  json falcon = {{"model_type", "RefinedWeb"}, {"hidden_size", 64}, {"n_layer", 2},
                 {"n_head", 4},                {"n_head_kv", 2},    {"vocab_size", 128}};
  ModelSpec spec = Parse(falcon);
  EXPECT_EQ(spec.architecture, Architecture::kFalcon);
  EXPECT_EQ(spec.kv_heads, 2);
  EXPECT_TRUE(spec.separate_norms);
  EXPECT_TRUE(spec.tied_embeddings);
}

TEST(ModelConfig, TakesTheClassNameWhereTheTypeIsAbsent) {
  json config = With(Without(Llama(), "model_type"), "architectures", {"LlamaForCausalLM"});
  EXPECT_EQ(Parse(config).architecture, Architecture::kLlama);
}

TEST(ModelConfig, SaysWhatIsNotJson) {
  EXPECT_THAT(ErrorOf(std::string("{\n\"a\": 1,\n}")), HasSubstr("is not JSON"));
  EXPECT_THAT(ErrorOf(std::string("{\n\"a\": 1,\n}")), HasSubstr("line 3"));
  EXPECT_THAT(ErrorOf(std::string("")), HasSubstr("is not JSON"));
  EXPECT_THAT(ErrorOf(json::array({1})), HasSubstr("must be a JSON object"));
}

TEST(ModelConfig, NamesTheMissingSize) {
  EXPECT_THAT(ErrorOf(Without(Llama(), "hidden_size")), HasSubstr("no `hidden_size`"));
  EXPECT_THAT(ErrorOf(Without(Llama(), "vocab_size")), HasSubstr("no `vocab_size`"));
  EXPECT_THAT(ErrorOf(Without(Llama(), "intermediate_size")), HasSubstr("`intermediate_size`"));
}

TEST(ModelConfig, RejectsHeadsThatDoNotDivide) {
  EXPECT_THAT(ErrorOf(With(Llama(), "num_attention_heads", 5)),
              AllOf(HasSubstr("hidden_size 64"), HasSubstr("5 num_attention_heads")));
  EXPECT_THAT(ErrorOf(With(Llama(), "num_key_value_heads", 3)),
              AllOf(HasSubstr("4 attention heads"), HasSubstr("3 key and value heads")));
  EXPECT_THAT(ErrorOf(With(Llama(), "head_dim", 15)), HasSubstr("need an even width"));
}

TEST(ModelConfig, NamesTheUnsupportedArchitectureAndTheSupportedOnes) {
  std::string error = ErrorOf(With(Llama(), "model_type", "qwen3"));
  EXPECT_THAT(error, AllOf(HasSubstr("'qwen3'"), HasSubstr("llama, mistral, qwen2, falcon or gpt2"),
                           HasSubstr("did you mean qwen2?")));
  EXPECT_THAT(ErrorOf(Without(Llama(), "model_type")), HasSubstr("neither `model_type`"));
}

TEST(ModelConfig, RejectsSenselessSizes) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "vocab_size", "max_position_embeddings"}) {
    for (int64_t value : {int64_t{0}, int64_t{-1}, int64_t{1} << 40, INT64_MAX}) {
      EXPECT_NE(ErrorOf(With(Llama(), key, value)), "") << key << " " << value;
    }
    EXPECT_THAT(ErrorOf(With(Llama(), key, "64")), HasSubstr(key));
    EXPECT_THAT(ErrorOf(With(Llama(), key, 64.5)), HasSubstr("whole number"));
    EXPECT_THAT(ErrorOf(With(Llama(), key, UINT64_MAX)), HasSubstr("too large"));
  }
}

TEST(ModelConfig, RejectsSenselessRealNumbers) {
  for (double theta : {0.0, -10000.0}) {
    EXPECT_THAT(ErrorOf(With(Llama(), "rope_theta", theta)), HasSubstr("has rope_theta = "));
    EXPECT_THAT(ErrorOf(With(Llama(), "rope_parameters", {{"rope_theta", theta}})),
                HasSubstr("must be over 0"));
  }
  EXPECT_THAT(ErrorOf(With(Llama(), "rope_parameters", {{"rope_theta", "1e4"}})),
              HasSubstr("must be a number"));
  for (double eps : {0.0, -1e-6, 0.1, 1e6}) {
    EXPECT_THAT(ErrorOf(With(Llama(), "rms_norm_eps", eps)),
                HasSubstr("which must be over 0 and under 0.1"));
  }
  EXPECT_EQ(ErrorOf(With(Llama(), "rms_norm_eps", 1e-12)), "");
}

TEST(ModelConfig, RejectsArchitecturesThatAreNoListOfStrings) {
  for (const json& value : {json("LlamaForCausalLM"), json(7), json::array({1}),
                            json::array({"LlamaForCausalLM", nullptr})}) {
    EXPECT_THAT(ErrorOf(With(Llama(), "architectures", value)),
                HasSubstr("must be a list of class names"));
  }
  EXPECT_EQ(ErrorOf(With(Llama(), "architectures", json::array())), "");
}

TEST(ModelConfig, RefusesExpertsInADenseArchitecture) {
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    EXPECT_THAT(ErrorOf(With(Llama(), key, 8)),
                AllOf(HasSubstr(std::string(key) + " = 8"),
                      HasSubstr("mixture of experts is not supported")));
    EXPECT_EQ(ErrorOf(With(Llama(), key, 1)), "");
  }
}

TEST(ModelConfig, RefusesByNameWhatIsNotModelled) {
  EXPECT_THAT(ErrorOf(With(Llama(), "hidden_act", "relu")), HasSubstr("hidden_act 'relu'"));
  EXPECT_THAT(ErrorOf(With(Llama(), "quantization_config", json::object())),
              HasSubstr("quantization_config"));
  json falcon = {{"model_type", "falcon"}, {"hidden_size", 64}, {"num_hidden_layers", 2},
                 {"num_attention_heads", 4}, {"vocab_size", 128}, {"alibi", true}};
  EXPECT_THAT(ErrorOf(falcon), HasSubstr("alibi"));
}

}  // namespace
}  // namespace hbmtune

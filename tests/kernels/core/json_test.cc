#include "kernels/core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/hash.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const char* text) {
  TrainConfig config;
  try {
    FromJson(Json::parse(text), config, "train_config");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Json, WritesNestedFieldsAndEnumsByName) {
  TrainConfig config;
  config.zero.stage = 2;
  config.param_dtype = Dtype::kBf16;
  Json json = ToJson(config);
  EXPECT_EQ(json["zero"]["stage"], 2);
  EXPECT_EQ(json["param_dtype"], "bf16");
}

TEST(Json, ReadsBackWhatItWrote) {
  Workload workload;
  workload.model.hidden = 4096;
  workload.framework = Framework::kHfSdpaDeepspeed;
  workload.lora.rank = 8;
  Workload read;
  FromJson(ToJson(workload), read);
  EXPECT_EQ(ToJson(read), ToJson(workload));
}

TEST(Json, KeepsWhatIsNotNamed) {
  TrainConfig config;
  config.micro_batch = 7;
  FromJson(Json::parse(R"({"grad_accum": 3})"), config);
  EXPECT_EQ(config.micro_batch, 7);
  EXPECT_EQ(config.grad_accum, 3);
}

TEST(Json, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(ErrorOf(R"({"zero": {"stag": 1}})"), HasSubstr("train_config.zero.stag"));
  EXPECT_THAT(ErrorOf(R"({"micro_batch": 1.5})"), HasSubstr("train_config.micro_batch"));
  EXPECT_THAT(ErrorOf(R"({"param_dtype": "fp8"})"), HasSubstr("'fp8' is not fp32, bf16"));
}

TEST(Hash, ChangesWithAFieldAndNotWithADefault) {
  TrainConfig config;
  EXPECT_EQ(CanonicalText(config), "[]");
  std::string before = CanonicalHash(config);
  config.checkpoint.every = 1;
  EXPECT_NE(CanonicalHash(config), before);
  config.checkpoint.every = 0;
  EXPECT_EQ(CanonicalHash(config), before);
}

}  // namespace
}  // namespace hbmtune

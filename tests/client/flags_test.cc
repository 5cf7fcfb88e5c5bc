#include "client/flags.h"

#include <CLI/Config.hpp>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/core/field_path.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune::client {
namespace {

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() {
    AddFlags(app_, FlagFields<TrainConfig>(), "train config", Defaults::kShown, given_);
  }

  // What the command line gives; the words come last first, as CLI11 wants them.
  const GivenFields& Parse(std::vector<std::string> words) {
    given_.clear();
    std::reverse(words.begin(), words.end());
    app_.parse(words);
    return given_;
  }

  CLI::App app_;
  GivenFields given_;
};

TEST_F(FlagsTest, EveryFieldOfTheStructHasItsFlag) {
  std::vector<std::string> paths;
  for (const FlagField& field : FlagFields<TrainConfig>()) {
    paths.push_back(field.path);
    EXPECT_NE(app_.get_option_no_throw(FlagName(field.path)), nullptr) << field.path;
  }
  EXPECT_EQ(paths, FieldPaths<TrainConfig>());
}

TEST_F(FlagsTest, NamesHaveDashesAndDotsAndComeBack) {
  EXPECT_EQ(FlagName("zero.reduce_bucket_size"), "--zero.reduce-bucket-size");
  EXPECT_EQ(PathOfFlag("--zero.reduce-bucket-size"), "zero.reduce_bucket_size");
  EXPECT_EQ(PathOfFlag("zero.stage"), "zero.stage");
}

TEST_F(FlagsTest, ValuesArriveAsJsonOfTheFieldsType) {
  const GivenFields& given =
      Parse({"--micro-batch", "4", "--zero.reduce-bucket-size=5e8", "--param-dtype", "bf16",
             "--offload.keep-ratio", "0.25", "--offload.pool-bytes", "1.5GiB"});
  EXPECT_EQ(given.at("micro_batch"), Json(4));
  EXPECT_EQ(given.at("zero.reduce_bucket_size"), Json(500'000'000));
  EXPECT_EQ(given.at("param_dtype"), Json("bf16"));
  EXPECT_EQ(given.at("offload.keep_ratio"), Json(0.25));
  EXPECT_EQ(given.at("offload.pool_bytes"), Json(int64_t{3} << 29));
  EXPECT_EQ(given.size(), 5u);
}

TEST_F(FlagsTest, ASwitchMayStandAloneOrTakeAValue) {
  EXPECT_EQ(Parse({"--zero.overlap-comm", "--micro-batch", "2"}).at("zero.overlap_comm"),
            Json(true));
  app_.clear();
  EXPECT_EQ(Parse({"--checkpoint.keep-inputs=false"}).at("checkpoint.keep_inputs"), Json(false));
  app_.clear();
  EXPECT_EQ(Parse({"--checkpoint.keep-inputs", "off"}).at("checkpoint.keep_inputs"), Json(false));
}

TEST_F(FlagsTest, TheLastOfTwoWins) {
  EXPECT_EQ(Parse({"--micro-batch", "4", "--micro-batch", "8"}).at("micro_batch"), Json(8));
}

TEST_F(FlagsTest, EveryParsedFieldFitsTheStruct) {
  for (const FlagField& field : FlagFields<TrainConfig>()) {
    TrainConfig config;
    std::string text = field.default_text;
    ASSERT_NO_THROW(SetField(config, field.path, field.parse(text))) << field.path;
    EXPECT_EQ(ToJson(config), ToJson(TrainConfig{})) << field.path;
  }
}

struct BadValue {
  std::string flag;
  std::string value;
  std::string sentence;
};

class BadValues : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadValues, IsNamedWithWhatItMayBe) {
  CLI::App app;
  GivenFields given;
  AddFlags(app, FlagFields<TrainConfig>(), "t", Defaults::kShown, given);
  AddFlags(app, FlagFields<Workload>("model"), "w", Defaults::kShown, given);
  std::vector<std::string> words = {GetParam().value, GetParam().flag};
  try {
    app.parse(words);
    FAIL() << "accepted";
  } catch (const CLI::ValidationError& error) {
    EXPECT_EQ(std::string(error.what()), GetParam().flag + ": " + GetParam().sentence);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Flags, BadValues,
    ::testing::Values(
        BadValue{"--optimizer", "adam",
                 "'adam' is not adamw, adamw-8bit or sgd (did you mean adamw?)"},
        BadValue{"--framework", "jax",
                 "'jax' is not fused, hf-eager, hf-sdpa, hf-eager+ddp, hf-sdpa+ddp, "
                 "hf-eager+deepspeed or hf-sdpa+deepspeed"},
        BadValue{"--micro-batch", "two", "'two' is not a whole number"},
        BadValue{"--micro-batch", "1.5", "'1.5' is not a whole number"},
        BadValue{"--micro-batch", "1e30",
                 "'1e30' is over 9007199254740992, which no number here may be"},
        BadValue{"--offload.pool-bytes", "1 parsec",
                 "'1 parsec' is not a size (like 512MiB or 1.5GiB)"},
        BadValue{"--offload.pool-bytes", "64",
                 "'64' is 64 bytes: say 64GiB or 64MiB, or 64B if you mean it"},
        BadValue{"--offload.keep-ratio", "nan", "'nan' is not a number"},
        BadValue{"--zero.overlap-comm", "perhaps", "'perhaps' is not true or false"}));

}  // namespace
}  // namespace hbmtune::client

#include "kernels/core/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace hbmtune {
namespace {

const std::vector<std::string> kNames = {"llama2-7b", "llama2-13b", "gpt2", "gpt2-xl", "mi210"};

TEST(NearestName, ForgivesTypos) {
  EXPECT_EQ(NearestName("lama2-7b", kNames), "llama2-7b");
  EXPECT_EQ(NearestName("LLaMA2-13B", kNames), "llama2-13b");
  EXPECT_EQ(NearestName("gtp2", kNames), "gpt2");
  EXPECT_EQ(NearestName("mi201", kNames), "mi210");
}

TEST(NearestName, GuessesNothingFarOff) {
  EXPECT_EQ(NearestName("bert-base", kNames), "");
  EXPECT_EQ(NearestName("", kNames), "");
  EXPECT_EQ(NearestName("x", {}), "");
  const std::vector<std::string> two_letters = {"bf"};
  EXPECT_EQ(NearestName("xy", two_letters), "");
}

TEST(DidYouMean, IsAClauseOrNothing) {
  EXPECT_EQ(DidYouMean("gpt3", kNames), " (did you mean gpt2?)");
  EXPECT_EQ(DidYouMean("bert-base", kNames), "");
}

}  // namespace
}  // namespace hbmtune

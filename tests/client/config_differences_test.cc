#include "client/config_differences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/prose.h"
#include "client/table.h"
#include "kernels/core/field_path.h"

namespace hbmtune::client {
namespace {

using ::testing::ElementsAre;

TEST(ConfigDifferences, WhatAllHaveInCommonIsToldOnce) {
  TrainConfig a;
  a.micro_batch = 4;
  a.zero.stage = 2;
  TrainConfig b = a;
  b.micro_batch = 8;
  b.allocator.max_split_size_mb = 128;
  const ConfigsApart apart = DescribeApart({a, b}, Framework::kHfSdpaDeepspeed);
  EXPECT_EQ(apart.common, "accumulation 1, no checkpointing, fp32, ZeRO 2, buckets 5e8");
  EXPECT_THAT(apart.own, ElementsAre("micro-batch 4",
                                     "micro-batch 8, allocator.max-split-size-mb 128"));
}

TEST(ConfigDifferences, OneThatHasNothingOfItsOwnIsADash) {
  TrainConfig a;
  TrainConfig b;
  b.zero.contiguous_gradients = false;
  EXPECT_THAT(DescribeApart({a, b}, Framework::kFused).own,
              ElementsAre("–", "zero.contiguous-gradients false"));
}

// Any field alone, told or not by the words for people.
TEST(ConfigDifferences, NoTwoThatDifferReadTheSame) {
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    TrainConfig a;
    TrainConfig b;
    const Json value = *GetField(a, path);
    Json other = value.is_boolean() ? Json(!value.get<bool>()) : Json();
    if (value.is_number_integer()) other = value.get<int64_t>() + 1;
    if (value.is_number_float()) other = value.get<double>() + 0.125;
    if (path.ends_with("_dtype")) other = "bf16";
    if (path == "attention") other = "materialised";
    if (path == "optimizer_loop") other = "foreach";
    if (path == "offload.optimizer") other = "stream";
    if (path == "offload.activations") other = "layers";
    SetField(b, path, other);
    const ConfigsApart apart = DescribeApart({a, b}, Framework::kFused);
    EXPECT_NE(apart.own[0], apart.own[1]) << path;
  }
}

TEST(ConfigDifferences, OfNoneAndOneNothingIsApart) {
  EXPECT_TRUE(DescribeApart({}, Framework::kFused).own.empty());
  const ConfigsApart one = DescribeApart({TrainConfig{}}, Framework::kFused);
  EXPECT_EQ(one.common, "micro-batch 1, accumulation 1, no checkpointing, fp32");
  EXPECT_THAT(one.own, ElementsAre("–"));
}

TEST(Table, TheLastCellGoesOnUnderItselfWhereItWouldBeCut) {
  Table table({{"n", Align::kRight}, {"what"}});
  table.Add({"1", "a word and another one"});
  EXPECT_THAT(table.Lines(28), ElementsAre("n  what", "1  a word and another one"));
  table.Add({"2", "many words that do not fit beside it"});
  EXPECT_THAT(table.Lines(28), ElementsAre("n  what", "1  a word and another one",
                                           "2  many words that do not",
                                           "   fit beside it"));
}

TEST(Table, WhereThereIsNoRoomBesideItTheCellGoesUnderTheRow) {
  Table table({{"n", Align::kRight}, {"what"}});
  table.Add({"1", "several words here"});
  EXPECT_THAT(table.Lines(12), ElementsAre("n  what", "1", "    several", "    words", "    here"));
  EXPECT_FALSE(table.Lines(1).empty());
  Table numbers({{"a long title"}, {"n", Align::kRight}});
  numbers.Add({"a long name", "1"});
  EXPECT_EQ(numbers.Lines(8).size(), 2u);  // the terminal cuts them
}

}  // namespace
}  // namespace hbmtune::client

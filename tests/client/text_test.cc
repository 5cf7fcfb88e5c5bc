#include "client/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/table.h"

namespace hbmtune::client {
namespace {

using ::testing::ElementsAre;

TEST(Text, WidthCountsCharactersNotBytes) {
  EXPECT_EQ(DisplayWidth("▕██▏ ×"), 6u);
  EXPECT_EQ(DisplayWidth(""), 0u);
}

TEST(Text, TruncateCutsBetweenCharacters) {
  EXPECT_EQ(Truncate("micro-batch 2 × 16", 18), "micro-batch 2 × 16");
  EXPECT_EQ(Truncate("micro-batch 2 × 16", 16), "micro-batch 2 ×…");
  EXPECT_EQ(Truncate("××××", 3), "××…");
  EXPECT_EQ(Truncate("abc", 1), "…");
  EXPECT_EQ(Truncate("abc", 0), "");
}

TEST(Text, PadsToColumns) {
  EXPECT_EQ(PadRight("×", 3), "×  ");
  EXPECT_EQ(PadLeft("×", 3), "  ×");
  EXPECT_EQ(PadLeft("long", 2), "long");
}

TEST(Text, WrapsAtSpacesAndLeavesLongWordsWhole) {
  EXPECT_THAT(Wrap("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(Wrap("a verylongword b", 4), ElementsAre("a", "verylongword", "b"));
  EXPECT_THAT(Wrap("", 10), ElementsAre(""));
}

TEST(Text, QuotesAWordOfTheShellWhereItNeedsThat) {
  EXPECT_EQ(ShellWord("/run/user/0/a-b.sock"), "/run/user/0/a-b.sock");
  EXPECT_EQ(ShellWord("gpu7:9465"), "gpu7:9465");
  EXPECT_EQ(ShellWord("my folder/s"), "'my folder/s'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord("$HOME"), "'$HOME'");
  EXPECT_EQ(ShellWord(""), "''");
}

TEST(Text, JoinsWords) {
  EXPECT_EQ(JoinWords({"a", "b", "c"}), "a, b or c");
  EXPECT_EQ(JoinWords({"a", "b"}, "and"), "a and b");
  EXPECT_EQ(JoinWords({"a"}), "a");
  EXPECT_EQ(JoinWords({}), "");
}

TEST(Text, NumbersHaveThreeDigitsOrSo) {
  EXPECT_EQ(FormatNumber(1234567), "1,234,567");
  EXPECT_EQ(FormatNumber(-1234), "-1,234");
  EXPECT_EQ(FormatNumber(999.4), "999");
  EXPECT_EQ(FormatNumber(99.99), "100");
  EXPECT_EQ(FormatNumber(12.345), "12.3");
  EXPECT_EQ(FormatNumber(1.2345), "1.23");
  EXPECT_EQ(FormatNumber(0.01234), "0.0123");
  EXPECT_EQ(FormatNumber(0), "0");
}

TEST(Text, DurationsChooseTheirUnit) {
  EXPECT_EQ(FormatDuration(0.0000663), "0.1 ms");
  EXPECT_EQ(FormatDuration(0.0482), "48 ms");
  EXPECT_EQ(FormatDuration(0.5), "0.50 s");
  EXPECT_EQ(FormatDuration(3.14), "3.1 s");
  EXPECT_EQ(FormatDuration(59.4), "59 s");
  EXPECT_EQ(FormatDuration(59.6), "1 min 00 s");
  EXPECT_EQ(FormatDuration(125), "2 min 05 s");
  EXPECT_EQ(FormatDuration(3720), "1 h 02 min");
}

TEST(Text, CountsAndShares) {
  EXPECT_EQ(FormatCount(3840), "3,840");
  EXPECT_EQ(FormatShare(63, 64), "98 %");
  EXPECT_EQ(FormatShare(1, 0), "? %");
}

TEST(Table, AlignsColumnsAndLeavesNoTrailingSpaces) {
  Table table({{"name"}, {"tok/s", Align::kRight}, {"note"}});
  table.Add({"a", "1,234", "× 2"});
  table.Add({"longer", "5"});
  EXPECT_THAT(table.Lines(), ElementsAre("name    tok/s  note",  //
                                         "a       1,234  × 2",   //
                                         "longer      5"));
}

}  // namespace
}  // namespace hbmtune::client

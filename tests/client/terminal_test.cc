#include "client/terminal.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace hbmtune::client {
namespace {

// What lands in a file of which the terminal is told whatever the test wants.
class Screen {
 public:
  Screen() : file_(std::tmpfile()) {}
  ~Screen() { std::fclose(file_); }

  std::FILE* file() const { return file_; }
  std::string Text() const {
    std::rewind(file_);
    std::string text;
    for (int c; (c = std::fgetc(file_)) != EOF;) text += static_cast<char>(c);
    return text;
  }

 private:
  std::FILE* file_;
};

TEST(Terminal, AFileGetsPlainLinesUncutAndNoLiveLine) {
  Screen screen;
  Terminal terminal(screen.file());
  std::string line(300, 'x');
  terminal.Print(Terminal::Style::kBold, line);
  terminal.Live("working");
  terminal.ClearLive();
  EXPECT_FALSE(terminal.interactive());
  EXPECT_EQ(screen.Text(), line + "\n");
}

TEST(Terminal, TheLiveLineIsRedrawnInPlaceAndLeftFreeOfTheLastColumn) {
  Screen screen;
  Terminal terminal(screen.file(), true, false, 10);
  terminal.Live("1234567890123");
  terminal.Live("two");
  EXPECT_EQ(screen.Text(), "\r\x1b[2K12345678…\r\x1b[2Ktwo");
}

TEST(Terminal, ALineThatStaysTakesTheLiveLineAway) {
  Screen screen;
  Terminal terminal(screen.file(), true, false, 10);
  terminal.Live("live");
  terminal.Print("0123456789abc");
  EXPECT_EQ(screen.Text(), "\r\x1b[2Klive\r\x1b[2K012345678…\n");
}

TEST(Terminal, ColourIsAddedAfterCuttingAndOnlyWhenThereIsAny) {
  Screen screen;
  Terminal plain(screen.file(), true, false, 80);
  Terminal colourful(screen.file(), true, true, 4);
  EXPECT_EQ(plain.Paint(Terminal::Style::kGreen, "ok"), "ok");
  colourful.Print(Terminal::Style::kGreen, "fits: 3");
  EXPECT_EQ(screen.Text(), "\x1b[32mfit…\x1b[0m\n");
}

TEST(Terminal, TheLiveLineDoesNotOutliveTheTerminal) {
  Screen screen;
  { Terminal(screen.file(), true, false, 80).Live("live"); }
  EXPECT_EQ(screen.Text(), "\r\x1b[2Klive\r\x1b[2K");
}

}  // namespace
}  // namespace hbmtune::client

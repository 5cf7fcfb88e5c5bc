#include "client/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>

#include "client/output.h"
#include "client/text.h"

namespace hbmtune::client {
namespace {

constexpr size_t kUsualColumns = 80;

bool IsInteractive(std::FILE* out) {
  const char* term = std::getenv("TERM");
  return isatty(fileno(out)) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

// https://no-color.org: any value but the empty one.
bool WantsColour() {
  const char* no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == '\0';
}

}  // namespace

Terminal::Terminal(std::FILE* out)
    : out_(out), interactive_(IsInteractive(out)), colour_(interactive_ && WantsColour()) {}

Terminal::Terminal(std::FILE* out, bool interactive, bool colour, size_t columns)
    : out_(out), interactive_(interactive), colour_(colour), fixed_columns_(columns) {}

Terminal::~Terminal() { ClearLive(); }

size_t Terminal::columns() const {
  if (!interactive_) return std::numeric_limits<size_t>::max();
  if (fixed_columns_ > 0) return fixed_columns_;
  winsize size{};
  if (ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kUsualColumns;
}

std::string Terminal::Paint(Style style, std::string_view text) const {
  if (!colour_) return std::string(text);
  const char* code = "1";
  switch (style) {
    case Style::kBold: code = "1"; break;
    case Style::kDim: code = "2"; break;
    case Style::kGreen: code = "32"; break;
    case Style::kYellow: code = "33"; break;
    case Style::kRed: code = "31"; break;
  }
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

void Terminal::Print(std::string_view line) {
  ClearLive();
  WriteOut(out_, Truncate(line, columns()) + "\n");
}

void Terminal::Print(Style style, std::string_view line) {
  ClearLive();
  WriteOut(out_, Paint(style, Truncate(line, columns())) + "\n");
}

void Terminal::PrintCommand(std::string_view line) {
  ClearLive();
  WriteOut(out_, std::string(line) + "\n");
}

void Terminal::Live(std::string_view line) {
  if (!interactive_) return;
  // One column stays free: a full line makes some terminals wrap, and then \r redraws below it.
  WriteOut(out_, "\r\x1b[2K" + Truncate(line, columns() - 1));
  live_ = true;
}

void Terminal::ClearLive() {
  if (!live_) return;
  WriteOut(out_, "\r\x1b[2K");
  live_ = false;
}

}  // namespace hbmtune::client

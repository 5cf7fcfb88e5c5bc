#include "client/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "client/output.h"
#include "client/text.h"

namespace hbmtune::client {
namespace {

// xterm's second page and back; the cursor hidden meanwhile.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";

bool IsTerminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

winsize SizeOf() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    size.ws_col = 80;
    size.ws_row = 24;
  }
  return size;
}

}  // namespace

std::string Harmless(std::string text) {
  for (char& c : text) {
    if ((c >= 0 && c < ' ') || c == '\x7f') c = '?';
  }
  return text;
}

Screen::Screen() : interactive_(IsTerminal()) {
  if (interactive_) WriteOut(stdout, kEnter);
}

Screen::~Screen() {
  if (interactive_) WriteOut(stdout, kLeave);
}

size_t Screen::columns() const {
  return interactive_ ? SizeOf().ws_col : std::string::npos;
}

void Screen::Draw(const std::vector<std::string>& lines) {
  std::string text;
  if (!interactive_) {
    for (const std::string& line : lines) text += Harmless(line) + "\n";
    return WriteOut(stdout, text + "\n");
  }
  const winsize size = SizeOf();
  text = "\x1b[H";
  size_t row = 0;
  for (const std::string& line : lines) {
    if (++row > size.ws_row) break;
    if (row > 1) text += "\r\n";
    text += Truncate(Harmless(line), size.ws_col) + "\x1b[K";
  }
  WriteOut(stdout, text + "\x1b[J");
}

}  // namespace hbmtune::client

#include "client/prose.h"

#include <algorithm>

#include "client/text.h"

namespace hbmtune::client {

void PrintProse(Terminal& terminal, const std::string& text, const std::string& first,
                const std::string& rest, size_t most) {
  const size_t columns = std::min(terminal.columns(), most);
  if (DisplayWidth(first + text) <= columns) return terminal.Print(first + text);
  const size_t indent = std::max(DisplayWidth(first), DisplayWidth(rest));
  std::string before = first;
  for (const std::string& line : Wrap(text, columns > indent ? columns - indent : 1)) {
    terminal.Print(before + line);
    before = rest;
  }
}

void PrintTable(Terminal& terminal, const Table& table) {
  bool title = true;
  for (const std::string& line : table.Lines(terminal.columns())) {
    title ? terminal.Print(Terminal::Style::kDim, line) : terminal.Print(line);
    title = false;
  }
}

}  // namespace hbmtune::client

#pragma once

#include <string>

#include "client/table.h"
#include "client/terminal.h"

// Text that is longer than a terminal is wide.
namespace hbmtune::client {

inline constexpr size_t kProseColumns = 100;  // wider lines are hard to read

inline constexpr size_t kNoLimit = std::string::npos;

// Wrapped at the terminal's width, `most` columns at the most; `first` stands before the first
// line, `rest` before the others.
void PrintProse(Terminal& terminal, const std::string& text, const std::string& first = "",
                const std::string& rest = "", size_t most = kProseColumns);

// The title dim; the last column wrapped where it would be cut.
void PrintTable(Terminal& terminal, const Table& table);

}  // namespace hbmtune::client

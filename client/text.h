#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// How people are shown text and numbers. Widths count code points: every character that hbmtune
// prints itself is one column wide.
namespace hbmtune::client {

size_t DisplayWidth(std::string_view utf8);

// At most `columns` wide; what is cut off is shown as "…".
std::string Truncate(std::string_view utf8, size_t columns);

// Padded with spaces to `columns`, never cut.
std::string PadRight(std::string_view utf8, size_t columns);
std::string PadLeft(std::string_view utf8, size_t columns);

// Lines of at most `columns`, broken at spaces; a word that is longer stands alone, uncut.
std::vector<std::string> Wrap(std::string_view text, size_t columns);

// As a shell reads it: one word, within quotes where it needs them.
std::string ShellWord(const std::string& text);

// Whether it is well-formed UTF-8, the only text that protobuf carries.
bool IsUtf8(const std::string& text);

// "a, b or c"; "and" in place of "or" where the word says so.
std::string JoinWords(const std::vector<std::string>& words, std::string_view last = "or");

// "1,234", "12.3", "0.123": about three significant digits, thousands apart.
std::string FormatNumber(double value);

// "1,234".
std::string FormatCount(int64_t count);

// "0.1 ms", "48 ms", "3.1 s", "2 min 05 s", "1 h 02 min".
std::string FormatDuration(double seconds);

// "93 %".
std::string FormatShare(double part, double whole);

}  // namespace hbmtune::client

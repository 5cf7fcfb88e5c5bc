#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace hbmtune::client {

// Where a person reads. On a terminal there are colours (unless NO_COLOR is set) and one live
// line at the bottom that is redrawn in place; elsewhere only plain lines. Not for several
// threads at once.
class Terminal {
 public:
  // Does not own `out`.
  explicit Terminal(std::FILE* out);
  // As above with the facts given, for tests; `columns` is the width if `interactive`.
  Terminal(std::FILE* out, bool interactive, bool colour, size_t columns);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool interactive() const { return interactive_; }

  // Columns of the terminal now (it may be resized); no limit when output is no terminal.
  size_t columns() const;

  // The text between the escape codes of a style, or as it is when there are no colours.
  enum class Style { kBold, kDim, kGreen, kYellow, kRed };
  std::string Paint(Style style, std::string_view text) const;

  // A line that stays: cut to the width before it is painted in `style`, if one is given.
  void Print(std::string_view line);
  void Print(Style style, std::string_view line);

  // A command to copy: never cut, the terminal may wrap it.
  void PrintCommand(std::string_view line);

  // Redraws the live line, cut to the width. Nothing when output is no terminal.
  void Live(std::string_view line);
  // Takes the live line away.
  void ClearLive();

 private:
  std::FILE* out_;
  bool interactive_;
  bool colour_;
  size_t fixed_columns_ = 0;  // 0: ask the terminal
  bool live_ = false;
};

}  // namespace hbmtune::client

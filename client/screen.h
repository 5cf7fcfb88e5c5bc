#pragma once

#include <string>
#include <vector>

namespace hbmtune::client {

// Control characters as "?": names that other users chose must not steer a terminal.
std::string Harmless(std::string text);

// A full screen of lines that are drawn anew in place, on the terminal's second page, so that what
// was there before is back in the end. Where stdout is no terminal: the lines, and an empty one.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool interactive() const { return interactive_; }
  // Columns of the terminal now; no limit where there is none.
  size_t columns() const;
  // Lines beyond the terminal's height and columns beyond its width are cut.
  void Draw(const std::vector<std::string>& lines);

 private:
  const bool interactive_;
};

}  // namespace hbmtune::client

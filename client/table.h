#pragma once

#include <string>
#include <vector>

namespace hbmtune::client {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

// Rows of text under titles, two spaces between columns, numbers to the right; nothing after the
// last text of a line. A cell that a row lacks is empty.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }

  // The title line first. Where a line would be wider than `columns`, its last cell is broken at
  // spaces and goes on under itself, or under the row where too little room is beside it.
  std::vector<std::string> Lines(size_t columns = std::string::npos) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace hbmtune::client

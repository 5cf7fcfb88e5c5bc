#include "client/table.h"

#include <algorithm>

#include "client/text.h"

namespace hbmtune::client {

std::vector<std::string> Table::Lines() const {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string>& titles = rows.emplace_back();
  for (const Column& column : columns_) titles.push_back(column.title);
  rows.insert(rows.end(), rows_.begin(), rows_.end());

  std::vector<size_t> widths(columns_.size(), 0);
  for (auto& row : rows) {
    row.resize(columns_.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string& line = lines.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      bool right = columns_[i].align == Align::kRight;
      line += right ? PadLeft(row[i], widths[i]) : PadRight(row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
  }
  return lines;
}

}  // namespace hbmtune::client

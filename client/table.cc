#include "client/table.h"

#include <algorithm>
#include <utility>

#include "client/text.h"

namespace hbmtune::client {

namespace {

constexpr size_t kLeastBeside = 24;  // columns in which a wrapped cell can be read
constexpr size_t kUnder = 4;         // its indent where it goes under the row

// The row's last cell after `line`, which holds the others.
void AddLast(const std::string& line, const std::string& cell, size_t columns,
             std::vector<std::string>& lines) {
  const size_t beside = DisplayWidth(line);
  const bool fits = cell.empty() || beside + DisplayWidth(cell) <= columns;
  if (fits) return lines.push_back(line + cell);
  const bool under = beside + kLeastBeside > columns;
  const size_t indent = under ? std::min(kUnder, columns - 1) : beside;
  std::string before = line;
  if (under) lines.push_back(std::exchange(before, std::string(indent, ' ')));
  for (const std::string& part : Wrap(cell, columns - indent)) {
    lines.push_back(before + part);
    before.assign(indent, ' ');
  }
}

}  // namespace

std::vector<std::string> Table::Lines(size_t columns) const {
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
  const size_t last = columns_.size() - 1;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      bool right = columns_[i].align == Align::kRight;
      if (i == last && !right) break;
      line += right ? PadLeft(row[i], widths[i]) : PadRight(row[i], widths[i]);
    }
    const bool left = columns_[last].align == Align::kLeft;
    AddLast(line, left ? row[last] : "", columns, lines);
  }
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

}  // namespace hbmtune::client

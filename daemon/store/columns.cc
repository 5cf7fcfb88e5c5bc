#include "daemon/store/columns.h"

#include <absl/strings/str_cat.h>

namespace hbmtune::daemon {

absl::Status Insert(Database& database, const std::string& table,
                    const std::vector<Column>& columns) {
  std::string names;
  std::string marks;
  std::vector<SqlValue> values;
  for (const Column& column : columns) {
    absl::StrAppend(&names, names.empty() ? "" : ",", column.name);
    absl::StrAppend(&marks, marks.empty() ? "?" : ",?");
    values.push_back(column.value);
  }
  return database.Execute(
      absl::StrCat("INSERT INTO ", table, "(", names, ") VALUES (", marks, ")"), values);
}

absl::Status Update(Database& database, const std::string& table,
                    const std::vector<Column>& columns, const std::string& condition,
                    const std::vector<SqlValue>& keys) {
  std::string assignments;
  std::vector<SqlValue> values;
  for (const Column& column : columns) {
    absl::StrAppend(&assignments, assignments.empty() ? "" : ",", column.name, "=?");
    values.push_back(column.value);
  }
  values.insert(values.end(), keys.begin(), keys.end());
  return database.Execute(
      absl::StrCat("UPDATE ", table, " SET ", assignments, " WHERE ", condition), values);
}

}  // namespace hbmtune::daemon

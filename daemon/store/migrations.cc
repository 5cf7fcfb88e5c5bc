#include "daemon/store/migrations.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace hbmtune::daemon {
namespace {

// What SQL relies on: "table leases", "column leases.uid INTEGER", "index studies_by_state".
absl::StatusOr<std::set<std::string>> Shape(Database& database) {
  auto rows = database.Query(
      "SELECT m.type AS kind, m.name AS name, c.name AS column_name, c.type AS type, "
      "c.\"notnull\" AS required, c.pk AS key "
      "FROM sqlite_master m LEFT JOIN pragma_table_info(m.name) c "
      "WHERE m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'");
  if (!rows.ok()) return rows.status();
  std::set<std::string> shape;
  for (const Row& row : *rows) {
    shape.insert(absl::StrCat(row.Text("kind"), " ", row.Text("name")));
    if (row.IsNull("column_name")) continue;
    shape.insert(absl::StrCat("column ", row.Text("name"), ".", row.Text("column_name"), " ",
                              row.Text("type"), row.Int("required") != 0 ? " NOT NULL" : "",
                              row.Int("key") != 0 ? " of the key" : ""));
  }
  return shape;
}

absl::Status Apply(Database& database, const Migration& migration) {
  absl::Status status = database.Transact([&] {
    absl::Status applied = database.ExecuteScript(std::string(migration.sql));
    if (!applied.ok()) return applied;
    return database.ExecuteScript(absl::StrCat("PRAGMA user_version=", migration.version));
  });
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("migration ", std::string(migration.name), ": ",
                                                  status.message()));
}

// The first of `these` that `others` have not, tables before what is in them; "" for none.
std::string FirstMissing(const std::set<std::string>& these, const std::set<std::string>& others) {
  std::vector<std::string> missing;
  std::set_difference(these.rbegin(), these.rend(), others.rbegin(), others.rend(),
                      std::back_inserter(missing), std::greater<>());
  return missing.empty() ? "" : missing.front();
}

// Between releases migrations are edited in place: a file of the same number may then have another
// schema, which would show only when some statement fails.
absl::Status CheckShape(Database& database, std::span<const Migration> applied) {
  auto wanted = Database::Open("");  // a temporary one, of no name
  if (!wanted.ok()) return wanted.status();
  for (const Migration& migration : applied) {
    if (absl::Status status = Apply(**wanted, migration); !status.ok()) return status;
  }
  auto expected = Shape(**wanted);
  if (!expected.ok()) return expected.status();
  auto found = Shape(database);
  if (!found.ok()) return found.status();
  const std::string missing = FirstMissing(*expected, *found);
  const std::string extra = FirstMissing(*found, *expected);
  if (missing.empty() && extra.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "it says schema version ", applied.size(), " but ",
      missing.empty() ? absl::StrCat("has ", extra, ", which that version has not")
                      : absl::StrCat("lacks ", missing),
      ": a build between two releases wrote it"));
}

}  // namespace

absl::Status Migrate(Database& database, std::span<const Migration> migrations) {
  auto rows = database.Query("PRAGMA user_version");
  if (!rows.ok()) return rows.status();
  const int64_t current = rows->front().Int("user_version");
  if (current < 0 || current > static_cast<int64_t>(migrations.size())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the database has schema version ", current, ", this hbmtuned knows ", migrations.size(),
        ": run the newer hbmtuned, or choose another state directory"));
  }
  const auto applied = static_cast<size_t>(current);
  absl::Status status = CheckShape(database, migrations.first(applied));
  for (const Migration& migration : migrations.subspan(applied)) {
    if (!status.ok()) break;
    status = Apply(database, migration);
  }
  return status;
}

}  // namespace hbmtune::daemon

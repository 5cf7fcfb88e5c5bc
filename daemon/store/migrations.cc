#include "daemon/store/migrations.h"

#include <absl/strings/str_cat.h>

#include <string>

namespace hbmtune::daemon {

absl::Status Migrate(Database& database, std::span<const Migration> migrations) {
  auto rows = database.Query("PRAGMA user_version");
  if (!rows.ok()) return rows.status();
  const int64_t current = rows->front().Int("user_version");
  if (current > static_cast<int64_t>(migrations.size())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the database has schema version ", current, ", this hbmtuned knows ", migrations.size(),
        ": run the newer hbmtuned, or choose another state directory"));
  }
  for (const Migration& migration : migrations) {
    if (migration.version <= current) continue;
    absl::Status status = database.Transact([&] {
      absl::Status applied = database.ExecuteScript(std::string(migration.sql));
      if (!applied.ok()) return applied;
      return database.ExecuteScript(absl::StrCat("PRAGMA user_version=", migration.version));
    });
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("migration ", std::string(migration.name),
                                                      ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace hbmtune::daemon

#pragma once

#include <absl/status/status.h>

#include <span>
#include <string_view>

#include "daemon/store/database.h"

namespace hbmtune::daemon {

// One file of migrations/, embedded at build time.
struct Migration {
  int version;             // the NNNN of its name, from 1 without gaps
  std::string_view name;   // "0001_studies.sql"
  std::string_view sql;
};

std::span<const Migration> EmbeddedMigrations();

// Brings the schema from PRAGMA user_version to the newest of `migrations`, one transaction each.
// FAILED_PRECONDITION if the file was written by a newer hbmtuned, or its tables, columns and
// indexes are not those that the migrations up to its version make: a build between two releases
// wrote it.
absl::Status Migrate(Database& database, std::span<const Migration> migrations);

}  // namespace hbmtune::daemon

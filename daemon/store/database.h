#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace hbmtune::daemon {

// A column's value: NULL, INTEGER, REAL or TEXT.
using SqlValue = std::variant<std::monostate, int64_t, double, std::string>;

// One row of an answer, columns by name.
class Row {
 public:
  Row(std::shared_ptr<const std::map<std::string, size_t, std::less<>>> names,
      std::vector<SqlValue> values)
      : names_(std::move(names)), values_(std::move(values)) {}

  // NULL for a column that the answer does not have.
  const SqlValue& Get(std::string_view name) const;
  bool IsNull(std::string_view name) const {
    return std::holds_alternative<std::monostate>(Get(name));
  }
  int64_t Int(std::string_view name) const;        // 0 for NULL
  double Real(std::string_view name) const;        // 0 for NULL
  std::string Text(std::string_view name) const;   // "" for NULL

 private:
  std::shared_ptr<const std::map<std::string, size_t, std::less<>>> names_;
  std::vector<SqlValue> values_;
};

// One SQLite file in WAL mode with synchronous=FULL: what COMMIT returned from survives a power
// cut. One connection, one caller at a time; any thread.
//
// Errors: RESOURCE_EXHAUSTED when the disk is full, fails or is read-only, when the file was taken
// away or somebody has locked it (it is `degraded` then until a write succeeds); DATA_LOSS when the
// file is no database or is corrupt; ALREADY_EXISTS for a unique key used twice; INTERNAL for a
// mistake in the SQL.
class Database {
 public:
  // Creates the file (mode 0600) if there is none. UNAVAILABLE names the file and why it cannot be
  // opened.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  absl::StatusOr<std::vector<Row>> Query(const std::string& sql,
                                         const std::vector<SqlValue>& values = {});
  absl::Status Execute(const std::string& sql, const std::vector<SqlValue>& values = {});
  // Several statements separated by semicolons, without values.
  absl::Status ExecuteScript(const std::string& sql);
  // Runs `body` in one transaction: committed if it returns OK, rolled back otherwise. Not nested.
  absl::Status Transact(const std::function<absl::Status()>& body);
  // Of the last INSERT of this thread's transaction.
  int64_t LastInsertId() const;

  // While degraded: tries a write that changes nothing, to see whether the disk has room again.
  void TryToRecover();
  // Why the last write failed, empty when writes work.
  std::string degraded() const;

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  absl::StatusOr<sqlite3_stmt*> Prepare(const std::string& sql);
  absl::Status Bind(sqlite3_stmt* statement, const std::vector<SqlValue>& values);
  absl::Status ErrorFrom(int code, const char* what);
  // Whether what is written would still be found: SQLite goes on with a file that is gone.
  absl::Status CheckFile();
  void NoteHealthy(bool wrote);

  sqlite3* const handle_;
  std::string path_;     // empty: a temporary database
  struct stat file_ {};  // as it was opened
  mutable std::recursive_mutex mutex_;
  std::map<std::string, sqlite3_stmt*> statements_;  // guarded by mutex_
  std::string degraded_;                             // guarded by mutex_
};

}  // namespace hbmtune::daemon

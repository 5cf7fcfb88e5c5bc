#include "daemon/store/database.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "daemon/base/unique_fd.h"

namespace hbmtune::daemon {
namespace {

SqlValue ColumnValue(sqlite3_stmt* statement, int column) {
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return static_cast<int64_t>(sqlite3_column_int64(statement, column));
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement, column);
    case SQLITE_NULL:
      return std::monostate{};
    default: {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
      return std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement, column)));
    }
  }
}

int BindOne(sqlite3_stmt* statement, int index, const SqlValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return sqlite3_bind_int64(statement, index, *integer);
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return sqlite3_bind_double(statement, index, *real);
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    return sqlite3_bind_text(statement, index, text->data(), static_cast<int>(text->size()),
                             SQLITE_TRANSIENT);
  }
  return sqlite3_bind_null(statement, index);
}

// Only the daemon's user may read it, whatever the umask; SQLite gives -wal and -shm the same mode.
// What cannot be opened is told by SQLite.
void MakePrivate(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file.valid()) fchmod(file.get(), 0600);
}

}  // namespace

const SqlValue& Row::Get(std::string_view name) const {
  static const SqlValue kNull;
  auto found = names_->find(name);
  return found == names_->end() ? kNull : values_[found->second];
}

int64_t Row::Int(std::string_view name) const {
  const auto* value = std::get_if<int64_t>(&Get(name));
  return value ? *value : 0;
}

double Row::Real(std::string_view name) const {
  if (const auto* value = std::get_if<double>(&Get(name))) return *value;
  return static_cast<double>(Int(name));
}

std::string Row::Text(std::string_view name) const {
  const auto* value = std::get_if<std::string>(&Get(name));
  return value ? *value : "";
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  MakePrivate(path);
  sqlite3* handle = nullptr;
  int code = sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                             nullptr);
  std::unique_ptr<Database> database(new Database(handle));
  if (code != SQLITE_OK) {
    return absl::UnavailableError(absl::StrCat("cannot open ", path, ": ", sqlite3_errstr(code)));
  }
  if (stat(path.c_str(), &database->file_) == 0) database->path_ = path;
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, 2000);
  absl::Status status = database->ExecuteScript(
      "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;");
  if (!status.ok()) return status;
  return database;
}

Database::~Database() {
  for (auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

absl::Status Database::ErrorFrom(int code, const char* what) {
  std::string text = absl::StrCat(what, ": ", sqlite3_errmsg(handle_));
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_BUSY:  // for two seconds: somebody looks at it with a lock, which passes
    case SQLITE_LOCKED:
      text = absl::StrCat("cannot write ", path_, ": ", sqlite3_errmsg(handle_),
                          "; nothing new is stored until that works again");
      degraded_ = text;
      return absl::ResourceExhaustedError(text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      degraded_ = text;
      return absl::DataLossError(text);
    case SQLITE_CONSTRAINT:
      return absl::AlreadyExistsError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::Status Database::CheckFile() {
  if (path_.empty()) return absl::OkStatus();
  struct stat now {};
  const bool there = stat(path_.c_str(), &now) == 0;
  const int error = errno;
  if (there && now.st_ino == file_.st_ino && now.st_dev == file_.st_dev) return absl::OkStatus();
  std::string what = " was replaced";
  if (!there && error == ENOENT) what = " was taken away";
  if (!there && error != ENOENT) what = absl::StrCat(" is out of reach (", strerror(error), ")");
  degraded_ = absl::StrCat(path_, what, " while the daemon used it: nothing is stored until it is ",
                           "put back, or the daemon restarted");
  return absl::ResourceExhaustedError(degraded_);
}

void Database::NoteHealthy(bool wrote) {
  if (wrote && !degraded_.empty()) degraded_.clear();
}

absl::StatusOr<sqlite3_stmt*> Database::Prepare(const std::string& sql) {
  auto [entry, inserted] = statements_.try_emplace(sql, nullptr);
  if (!inserted) return entry->second;
  int code = sqlite3_prepare_v3(handle_, sql.c_str(), static_cast<int>(sql.size()),
                                SQLITE_PREPARE_PERSISTENT, &entry->second, nullptr);
  if (code == SQLITE_OK) return entry->second;
  statements_.erase(entry);
  return ErrorFrom(code, "cannot prepare a statement");
}

absl::Status Database::Bind(sqlite3_stmt* statement, const std::vector<SqlValue>& values) {
  int index = 0;
  for (const SqlValue& value : values) {
    int code = BindOne(statement, ++index, value);
    if (code != SQLITE_OK) return ErrorFrom(code, "cannot bind a value");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Row>> Database::Query(const std::string& sql,
                                                 const std::vector<SqlValue>& values) {
  std::lock_guard lock(mutex_);
  absl::StatusOr<sqlite3_stmt*> prepared = Prepare(sql);
  if (!prepared.ok()) return prepared.status();
  sqlite3_stmt* statement = *prepared;
  absl::Cleanup reset = [statement] {
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
  };
  if (absl::Status status = Bind(statement, values); !status.ok()) return status;
  const bool writes = sqlite3_stmt_readonly(statement) == 0;
  if (writes) {
    if (absl::Status status = CheckFile(); !status.ok()) return status;
  }

  auto names = std::make_shared<std::map<std::string, size_t, std::less<>>>();
  const int columns = sqlite3_column_count(statement);
  for (int i = 0; i < columns; ++i) names->emplace(sqlite3_column_name(statement, i), i);
  std::vector<Row> rows;
  int code;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    std::vector<SqlValue> row;
    row.reserve(static_cast<size_t>(columns));
    for (int i = 0; i < columns; ++i) row.push_back(ColumnValue(statement, i));
    rows.emplace_back(names, std::move(row));
  }
  if (code != SQLITE_DONE) return ErrorFrom(code, "cannot run a statement");
  NoteHealthy(writes);
  return rows;
}

absl::Status Database::Execute(const std::string& sql, const std::vector<SqlValue>& values) {
  return Query(sql, values).status();
}

absl::Status Database::ExecuteScript(const std::string& sql) {
  std::lock_guard lock(mutex_);
  int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorFrom(code, "cannot run a script");
}

absl::Status Database::Transact(const std::function<absl::Status()>& body) {
  std::lock_guard lock(mutex_);
  if (absl::Status status = Execute("BEGIN IMMEDIATE"); !status.ok()) return status;
  absl::Status status = body();
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok() && sqlite3_get_autocommit(handle_) == 0) {
    // What rolls back is told by `status`; a failing ROLLBACK leaves nothing to add.
    std::string degraded = degraded_;
    ExecuteScript("ROLLBACK").IgnoreError();
    degraded_ = degraded;
  }
  return status;
}

int64_t Database::LastInsertId() const {
  std::lock_guard lock(mutex_);
  return sqlite3_last_insert_rowid(handle_);
}

void Database::TryToRecover() {
  if (degraded().empty()) return;
  std::lock_guard lock(mutex_);
  if (!CheckFile().ok()) return;
  auto version = Query("PRAGMA user_version");
  if (!version.ok() || version->empty()) return;
  const std::string same = absl::StrCat(version->front().Int("user_version"));
  if (ExecuteScript("PRAGMA user_version=" + same).ok()) degraded_.clear();
}

std::string Database::degraded() const {
  std::lock_guard lock(mutex_);
  return degraded_;
}

}  // namespace hbmtune::daemon

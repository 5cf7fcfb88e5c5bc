#include "daemon/store/maintenance.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

namespace hbmtune::daemon {
namespace {

using Json = nlohmann::ordered_json;

absl::Status ErrorOf(sqlite3* handle, int code, const std::string& path) {
  const std::string text =
      absl::StrCat(path, ": ", handle != nullptr ? sqlite3_errmsg(handle) : sqlite3_errstr(code));
  const int kind = code & 0xff;
  if (kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB) return absl::DataLossError(text);
  return absl::UnavailableError(text);
}

// An open file that is only read.
class Reader {
 public:
  ~Reader() { sqlite3_close(handle_); }

  absl::Status Open(const std::string& path) {
    path_ = path;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      return absl::NotFoundError(absl::StrCat("there is no database ", path));
    }
    const int code = sqlite3_open_v2(path.c_str(), &handle_, SQLITE_OPEN_READONLY, nullptr);
    if (code != SQLITE_OK) return ErrorOf(handle_, code, path);
    sqlite3_busy_timeout(handle_, 5000);
    return absl::OkStatus();
  }
  // Rows as objects, NULLs left out.
  absl::StatusOr<std::vector<Json>> Query(const std::string& sql, int64_t key = 0);
  sqlite3* handle() { return handle_; }

 private:
  std::string path_;
  sqlite3* handle_ = nullptr;
};

Json RowOf(sqlite3_stmt* statement) {
  Json row = Json::object();
  for (int i = 0; i < sqlite3_column_count(statement); ++i) {
    Json& value = row[sqlite3_column_name(statement, i)];
    switch (sqlite3_column_type(statement, i)) {
      case SQLITE_INTEGER:
        value = sqlite3_column_int64(statement, i);
        break;
      case SQLITE_FLOAT:
        value = sqlite3_column_double(statement, i);
        break;
      case SQLITE_NULL:
        row.erase(sqlite3_column_name(statement, i));
        break;
      default:
        value = reinterpret_cast<const char*>(sqlite3_column_text(statement, i));
    }
  }
  return row;
}

absl::StatusOr<std::vector<Json>> Reader::Query(const std::string& sql, int64_t key) {
  sqlite3_stmt* statement = nullptr;
  int code = sqlite3_prepare_v2(handle_, sql.c_str(), -1, &statement, nullptr);
  absl::Cleanup finalize = [&] { sqlite3_finalize(statement); };
  if (code != SQLITE_OK) return ErrorOf(handle_, code, path_);
  if (sqlite3_bind_parameter_count(statement) > 0) sqlite3_bind_int64(statement, 1, key);
  std::vector<Json> rows;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) rows.push_back(RowOf(statement));
  if (code != SQLITE_DONE) return ErrorOf(handle_, code, path_);
  return rows;
}

absl::Status CopyInto(sqlite3* from, const std::string& path) {
  sqlite3* to = nullptr;
  absl::Cleanup close_target = [&] { sqlite3_close(to); };
  int code = sqlite3_open(path.c_str(), &to);
  if (code != SQLITE_OK) return ErrorOf(to, code, path);
  sqlite3_backup* backup = sqlite3_backup_init(to, "main", from, "main");
  if (backup == nullptr) return ErrorOf(to, sqlite3_errcode(to), path);
  // In one go: a daemon that writes meanwhile would make it begin again.
  sqlite3_backup_step(backup, -1);
  code = sqlite3_backup_finish(backup);
  if (code != SQLITE_OK) return ErrorOf(to, code, path);
  // A copy is one file: whoever opens it needs no -wal beside it.
  sqlite3_exec(to, "PRAGMA journal_mode=DELETE", nullptr, nullptr, nullptr);
  return absl::OkStatus();
}

}  // namespace

absl::Status BackUp(const std::string& path, const std::string& target) {
  Reader reader;
  if (absl::Status status = reader.Open(path); !status.ok()) return status;
  std::error_code error;
  if (std::filesystem::exists(target, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat(target, " is there already: choose another name"));
  }
  auto verdict = reader.Query("PRAGMA quick_check(1)");
  if (!verdict.ok()) return verdict.status();
  const auto found = verdict->front().value("quick_check", std::string());
  if (found != "ok") {  // a copy of it would pass for a good one
    return absl::DataLossError(absl::StrCat(path, " is corrupt (", found, "): no backup was made; ",
                                            "copy the files themselves to keep what there is"));
  }
  const std::string beside = target + ".partial";
  const int file = open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", beside));
  absl::Cleanup clean = [&] {
    close(file);
    std::remove(beside.c_str());  // nothing after the rename
  };
  if (absl::Status status = CopyInto(reader.handle(), beside); !status.ok()) return status;
  if (fsync(file) != 0 || std::rename(beside.c_str(), target.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", target));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> CheckFile(const std::string& path) {
  Reader reader;
  if (absl::Status status = reader.Open(path); !status.ok()) return status;
  std::vector<std::string> wrong;
  auto verdicts = reader.Query("PRAGMA integrity_check(20)");
  if (!verdicts.ok()) return verdicts.status();
  for (const Json& row : *verdicts) {
    const auto verdict = row.value("integrity_check", std::string());
    if (verdict != "ok") wrong.push_back(verdict);
  }
  auto orphans = reader.Query("PRAGMA foreign_key_check");
  if (!orphans.ok()) return orphans.status();
  for (const Json& row : *orphans) {
    wrong.push_back(absl::StrCat("a row of ", row.value("table", std::string()),
                                 " refers to a row of ", row.value("parent", std::string()),
                                 " that is not there"));
  }
  auto counts = reader.Query(
      "SELECT id, progress_finished_trials AS counted, (SELECT COUNT(*) FROM trials WHERE"
      " study_id=id AND trials.state='FINISHED') AS there FROM studies WHERE counted<>there");
  if (!counts.ok()) return counts.status();
  for (const Json& row : *counts) {
    wrong.push_back(absl::StrCat("studies/", row["id"].get<int64_t>(), " counts ",
                                 row["counted"].get<int64_t>(), " finished trials, there are ",
                                 row["there"].get<int64_t>()));
  }
  return wrong;
}

absl::Status ExportTo(const std::string& path, std::ostream& out) {
  Reader reader;
  if (absl::Status status = reader.Open(path); !status.ok()) return status;
  // One transaction: a study and its trials as they were at one moment.
  if (auto begun = reader.Query("BEGIN"); !begun.ok()) return begun.status();
  auto studies = reader.Query("SELECT * FROM studies ORDER BY id");
  if (!studies.ok()) return studies.status();
  for (Json& study : *studies) {
    const int64_t id = study["id"].get<int64_t>();
    auto pins = reader.Query("SELECT path, value FROM study_pins WHERE study_id=?", id);
    auto trials = reader.Query("SELECT * FROM trials WHERE study_id=? ORDER BY number", id);
    if (!pins.ok()) return pins.status();
    if (!trials.ok()) return trials.status();
    study["pins"] = Json::object();
    for (const Json& pin : *pins) study["pins"][pin["path"].get<std::string>()] = pin["value"];
    study["trials"] = *trials;
    out << study.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  out.flush();
  return out ? absl::OkStatus() : absl::UnavailableError("the output cannot be written");
}

}  // namespace hbmtune::daemon

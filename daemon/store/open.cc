#include "daemon/store/open.h"

#include <absl/strings/str_cat.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "daemon/store/migrations.h"

namespace hbmtune::daemon {
namespace {

// A full check reads the whole file: about 10 ms for 10 MB. Larger files are checked by
// `hbmtune db check`, not at every start.
constexpr uintmax_t kQuickCheckBytes = 32 << 20;

absl::Status CheckIntegrity(Database& database, const std::string& path) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) > kQuickCheckBytes || error) return absl::OkStatus();
  auto rows = database.Query("PRAGMA quick_check(1)");
  if (!rows.ok()) return rows.status();
  std::string verdict = rows->empty() ? "no answer" : rows->front().Text("quick_check");
  return verdict == "ok" ? absl::OkStatus() : absl::DataLossError(verdict);
}

absl::StatusOr<std::unique_ptr<Database>> OpenAt(const std::string& path) {
  auto database = Database::Open(path);
  if (!database.ok()) return database;
  absl::Status status = CheckIntegrity(**database, path);
  if (status.ok()) status = Migrate(**database, EmbeddedMigrations());
  if (status.ok()) return database;
  std::string sentence = absl::StrCat(path, ": ", status.message());
  if (absl::IsFailedPrecondition(status)) {
    absl::StrAppend(&sentence, "; to begin anew, move it (and its -wal and -shm, if any) out of "
                               "the directory, with the studies that it holds");
  }
  return absl::Status(status.code(), sentence);
}

absl::Status MoveAside(const std::string& path, const std::string& aside) {
  for (const char* suffix : {"", "-wal", "-shm"}) {
    std::error_code error;
    std::filesystem::rename(path + suffix, aside + suffix, error);
    if (error && *suffix == '\0') {
      return absl::DataLossError(
          absl::StrCat(path, " is corrupt and cannot be moved aside: ", error.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EnsureDirectory(const std::string& given) {
  const std::string path = given.empty() ? "." : given;
  std::error_code error;
  const bool existed = std::filesystem::is_directory(path, error);
  if (!existed) {
    std::filesystem::create_directories(path, error);
    if (error) {
      return absl::PermissionDeniedError(
          absl::StrCat("cannot make the directory ", path, ": ", error.message()));
    }
    chmod(path.c_str(), 0700);
  }
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("cannot write to the directory ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Database>> OpenStore(const std::string& state_dir,
                                                    const Clock& clock, const Log& log) {
  const std::string path = state_dir + "/hbmtune.db";
  auto database = OpenAt(path);
  if (database.ok() || !absl::IsDataLoss(database.status())) return database;
  const std::string aside = absl::StrCat(
      path, ".corrupt-", absl::FormatTime("%Y%m%dT%H%M%S", clock.Now(), absl::UTCTimeZone()));
  log.Error("the database is corrupt: moved aside, a new one is begun",
            {{"error", database.status()}, {"moved_to", aside}});
  if (absl::Status status = MoveAside(path, aside); !status.ok()) return status;
  return OpenAt(path);
}

}  // namespace hbmtune::daemon

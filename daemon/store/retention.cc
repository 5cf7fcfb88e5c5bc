#include "daemon/store/retention.h"

#include <string>

namespace hbmtune::daemon {
namespace {

// Runs `sql`, which deletes what is older than its first value, at most its second, and counts it
// by RETURNING.
absl::Status Delete(Database& database, const std::string& sql, absl::Time now,
                    absl::Duration age, int64_t most, int64_t& count) {
  if (age == absl::InfiniteDuration()) return absl::OkStatus();
  auto rows = database.Query(sql, {absl::ToUnixMicros(now - age), most});
  if (!rows.ok()) return rows.status();
  count = static_cast<int64_t>(rows->size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Pruned> Prune(Database& database, const Retention& retention, absl::Time now,
                             int64_t most) {
  Pruned pruned;
  absl::Status status = Delete(
      database,
      "DELETE FROM studies WHERE id IN (SELECT id FROM studies WHERE end_time_us<?"
      " AND state IN ('SUCCEEDED','CANCELLED','FAILED') LIMIT ?) RETURNING id",
      now, retention.studies, most, pruned.studies);
  if (status.ok()) {
    status = Delete(database,
                    "DELETE FROM memory_minutes WHERE (device, start_time_us) IN"
                    " (SELECT device, start_time_us FROM memory_minutes WHERE start_time_us<?"
                    " LIMIT ?) RETURNING 1",
                    now, retention.minutes, most, pruned.minutes);
  }
  if (status.ok()) {
    status = Delete(database,
                    "DELETE FROM findings WHERE id IN (SELECT id FROM findings WHERE time_us<?"
                    " LIMIT ?) RETURNING id",
                    now, retention.findings, most, pruned.findings);
  }
  if (!status.ok()) return status;
  return pruned;
}

}  // namespace hbmtune::daemon

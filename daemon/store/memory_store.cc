#include "daemon/store/memory_store.h"

#include <limits>

#include "daemon/store/columns.h"

namespace hbmtune::daemon {
namespace {

int64_t Micros(absl::Time time) { return absl::ToUnixMicros(time); }

}  // namespace

absl::Status MemoryStore::AddMinute(const std::string& device, const StoredMinute& minute) {
  return database_.Execute(
      "INSERT OR REPLACE INTO memory_minutes"
      "(device, start_time_us, least_bytes, mean_bytes, most_bytes) VALUES (?,?,?,?,?)",
      {device, Micros(minute.start), minute.least_bytes, minute.mean_bytes, minute.most_bytes});
}

absl::StatusOr<std::vector<StoredMinute>> MemoryStore::Minutes(const std::string& device,
                                                               absl::Time from, absl::Time to,
                                                               int64_t limit) {
  auto rows = database_.Query(
      "SELECT * FROM memory_minutes WHERE device=? AND start_time_us>=? AND start_time_us<?"
      " ORDER BY start_time_us LIMIT ?",
      {device, Micros(from), Micros(to), limit});
  if (!rows.ok()) return rows.status();
  std::vector<StoredMinute> minutes;
  for (const Row& row : *rows) {
    minutes.push_back({absl::FromUnixMicros(row.Int("start_time_us")), row.Int("least_bytes"),
                       row.Real("mean_bytes"), row.Int("most_bytes")});
  }
  return minutes;
}

absl::Status MemoryStore::AddFinding(absl::Time time, const JobFinding& found) {
  return Insert(database_, "findings",
                {{"time_us", Micros(time)},
                 {"device", found.device},
                 {"job_id", found.job_id},
                 {"kind", std::string(Name(found.finding.kind))},
                 {"step", found.finding.step},
                 {"message", found.finding.message},
                 {"advice", found.finding.advice}});
}

absl::StatusOr<std::vector<StoredFinding>> MemoryStore::Findings(const std::string& device,
                                                                 int64_t before, int64_t limit) {
  if (before <= 0) before = std::numeric_limits<int64_t>::max();
  auto rows = device.empty()
                  ? database_.Query("SELECT * FROM findings WHERE id<? ORDER BY id DESC LIMIT ?",
                                    {before, limit})
                  : database_.Query("SELECT * FROM findings WHERE device=? AND id<?"
                                    " ORDER BY id DESC LIMIT ?",
                                    {device, before, limit});
  if (!rows.ok()) return rows.status();
  std::vector<StoredFinding> findings;
  for (const Row& row : *rows) {
    StoredFinding& found = findings.emplace_back();
    found.id = row.Int("id");
    found.time = absl::FromUnixMicros(row.Int("time_us"));
    found.device = row.Text("device");
    found.job_id = row.Text("job_id");
    if (auto kind = ParseEnum<FindingKind>(row.Text("kind"))) found.finding.kind = *kind;
    found.finding.step = row.Int("step");
    found.finding.message = row.Text("message");
    found.finding.advice = row.Text("advice");
  }
  return findings;
}

}  // namespace hbmtune::daemon

#include "daemon/store/baseline_table.h"

namespace hbmtune::daemon {

absl::Status BaselineTable::Save(const GpuBaseline& baseline) {
  return database_.Execute(
      "INSERT OR REPLACE INTO gpu_baselines (device, boot_id, used_bytes, dirty)"
      " VALUES (?,?,?,?)",
      {baseline.device, baseline.boot_id, baseline.used_bytes, baseline.dirty});
}

absl::Status BaselineTable::Remove(const std::string& device) {
  return database_.Execute("DELETE FROM gpu_baselines WHERE device=?", {device});
}

absl::StatusOr<std::vector<GpuBaseline>> BaselineTable::Load() {
  auto rows = database_.Query("SELECT * FROM gpu_baselines ORDER BY device");
  if (!rows.ok()) return rows.status();
  std::vector<GpuBaseline> baselines;
  for (const Row& row : *rows) {
    baselines.push_back(
        {row.Text("device"), row.Text("boot_id"), row.Int("used_bytes"), row.Text("dirty")});
  }
  return baselines;
}

}  // namespace hbmtune::daemon

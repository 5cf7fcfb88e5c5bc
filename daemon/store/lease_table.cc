#include "daemon/store/lease_table.h"

#include "daemon/base/failpoint.h"
#include "daemon/store/columns.h"

namespace hbmtune::daemon {

absl::Status LeaseTable::Save(const Lease& lease) {
  SqlValue ends;
  if (lease.ends != absl::InfiniteDuration()) ends = absl::ToInt64Microseconds(lease.ends);
  absl::Status saved = database_.Transact([&] {
    absl::Status status = database_.Execute("DELETE FROM leases WHERE job_id=?", {lease.job_id});
    if (status.ok()) {
      status = Insert(database_, "leases",
                      {{"job_id", lease.job_id},
                       {"uid", lease.uid},
                       {"boot_id", lease.boot_id},
                       {"ends_boot_us", ends}});
    }
    for (const std::string& device : lease.devices) {
      if (!status.ok()) break;
      status = Insert(database_, "lease_devices", {{"job_id", lease.job_id}, {"device", device}});
    }
    Failpoint("lease-written");
    return status;
  });
  Failpoint("lease-committed");
  return saved;
}

absl::Status LeaseTable::Remove(const std::string& job_id) {
  return database_.Execute("DELETE FROM leases WHERE job_id=?", {job_id});
}

absl::StatusOr<std::vector<Lease>> LeaseTable::Load() {
  auto rows = database_.Query("SELECT * FROM leases ORDER BY job_id");
  if (!rows.ok()) return rows.status();
  std::vector<Lease> leases;
  for (const Row& row : *rows) {
    Lease& lease = leases.emplace_back();
    lease.job_id = row.Text("job_id");
    lease.uid = row.Int("uid");
    lease.boot_id = row.Text("boot_id");
    if (!row.IsNull("ends_boot_us")) lease.ends = absl::Microseconds(row.Int("ends_boot_us"));
    auto devices = database_.Query(
        "SELECT device FROM lease_devices WHERE job_id=? ORDER BY device", {lease.job_id});
    if (!devices.ok()) return devices.status();
    for (const Row& device : *devices) lease.devices.push_back(device.Text("device"));
  }
  return leases;
}

}  // namespace hbmtune::daemon

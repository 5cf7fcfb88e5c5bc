#pragma once

#include "daemon/leases/arbiter.h"
#include "daemon/store/database.h"

namespace hbmtune::daemon {

// Leases on disk.
class LeaseTable final : public LeaseStore {
 public:
  explicit LeaseTable(Database& database) : database_(database) {}

  absl::Status Save(const Lease& lease) override;
  absl::Status Remove(const std::string& job_id) override;
  absl::StatusOr<std::vector<Lease>> Load() override;

 private:
  Database& database_;
};

}  // namespace hbmtune::daemon

#pragma once

#include "daemon/devices/gpu_guard.h"
#include "daemon/store/database.h"

namespace hbmtune::daemon {

// Baselines of GPUs on disk.
class BaselineTable final : public BaselineStore {
 public:
  explicit BaselineTable(Database& database) : database_(database) {}

  absl::Status Save(const GpuBaseline& baseline) override;
  absl::Status Remove(const std::string& device) override;
  absl::StatusOr<std::vector<GpuBaseline>> Load() override;

 private:
  Database& database_;
};

}  // namespace hbmtune::daemon

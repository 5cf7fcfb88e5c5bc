#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/time.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/leases/arbiter.h"
#include "daemon/telemetry/sysfs.h"

namespace hbmtune::daemon {

// What the used memory of a GPU has to come back to after a probe.
struct GpuBaseline {
  std::string device;
  std::string boot_id;     // a baseline of another boot says nothing
  int64_t used_bytes = 0;  // the least that was seen before a probe, with no process on the GPU
  std::string dirty;       // why no probe starts; empty for a clean one
};

// Where baselines live between two runs of the daemon: what a probe stranded before a crash is
// found after it. Called with the guard's lock held; it must not call back.
class BaselineStore {
 public:
  virtual ~BaselineStore() = default;
  virtual absl::Status Save(const GpuBaseline& baseline) = 0;
  virtual absl::Status Remove(const std::string& device) = 0;
  virtual absl::StatusOr<std::vector<GpuBaseline>> Load() = 0;
};

// Keeps probes from GPUs that others use, and sees that a probe gives back what it took: its KFD
// entry gone and used memory at most `slack_bytes` over the baseline within `patience`, else the
// device is DIRTY (the arbiter is told) until that holds or an admin says so (Forget). Memory that
// KFD accounts to other processes is taken off first. Reads the driver's files anew each time: the
// sampler's figures may be a second old. Any thread. GPUs go by their canonical names.
class GpuGuard {
 public:
  struct Limits {
    int64_t slack_bytes = int64_t{64} << 20;
    absl::Duration patience = absl::Seconds(10);
  };
  GpuGuard(Sysfs sysfs, DeviceArbiter& arbiter, BaselineStore& store, const Clock& clock,
           const Log& log, Limits limits);
  GpuGuard(Sysfs sysfs, DeviceArbiter& arbiter, BaselineStore& store, const Clock& clock,
           const Log& log)
      : GpuGuard(std::move(sysfs), arbiter, store, clock, log, Limits()) {}

  // Baselines of this boot; devices that were DIRTY still are.
  absl::Status Restore() ABSL_LOCKS_EXCLUDED(mutex_);

  // Before a probe, with its device's lock held. FAILED_PRECONDITION: the GPU has vanished, its
  // memory cannot be read, another process holds some, or it is not back at its baseline (it is
  // DIRTY then).
  absl::Status Check(const std::string& device) ABSL_LOCKS_EXCLUDED(mutex_);
  // After a probe, which was process `probe_pid`: waits for the baseline as long as it may take.
  void AwaitBaseline(const std::string& device, int64_t probe_pid) ABSL_LOCKS_EXCLUDED(mutex_);
  // To be called about once a second: DIRTY devices that are back at their baseline are clean.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);
  // What they use at the next probe is their new baseline; they are clean.
  void Forget(const std::vector<std::string>& devices) ABSL_LOCKS_EXCLUDED(mutex_);
  // How many are DIRTY.
  int64_t dirty() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Of a GPU now.
  struct Usage {
    int64_t used_bytes = 0;
    std::vector<GpuProcess> processes;  // with a KFD entry, most memory first
    int64_t unaccounted_bytes() const;  // used by no process that KFD knows
  };
  struct Known {
    GpuBaseline baseline;
    int64_t lost_pid = 0;  // the probe that made it DIRTY; 0 for none, or one before a restart
  };

  absl::StatusOr<Usage> Read(const std::string& device) const;
  // What keeps the device from its baseline; empty for nothing.
  std::string Shortcoming(const std::string& device, int64_t baseline_bytes,
                          int64_t probe_pid) const;
  void MarkDirty(const std::string& device, const std::string& why, int64_t probe_pid)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Save(const GpuBaseline& baseline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Known> Find(const std::string& device) const ABSL_LOCKS_EXCLUDED(mutex_);

  const Sysfs sysfs_;
  DeviceArbiter& arbiter_;
  BaselineStore& store_;
  const Clock& clock_;
  const Log& log_;
  const Limits limits_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon

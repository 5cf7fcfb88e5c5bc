#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/time.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/clock.h"

// Who may use a device: a job's lease, a study's probe, an admin's quiesce, or nobody because it is
// dirty. Devices go by their canonical names; aliases are resolved before.
namespace hbmtune::daemon {

// When probes may run on a GPU that no lease holds.
enum class ProbingPolicy : uint8_t {
  kAllocation,  // only inside the job that holds a lease on it
  kIdle,        // on a free device too
  kOff,
};

// A job's exclusive hold on a set of devices.
struct Lease {
  std::string job_id;                // the scheduler's; names the lease
  std::vector<std::string> devices;  // sorted, at least one
  int64_t uid = 0;                   // who acquired it
  std::string boot_id;               // that `ends` counts from
  absl::Duration ends = absl::InfiniteDuration();  // since boot, grace included
  bool durable = true;                             // stored; a restart knows it
};

enum class LeaseState : uint8_t {
  kGranted,   // the devices are the job's alone
  kDraining,  // it will have them when the probes that ran are gone; no new one starts
};

// Where leases live between two runs of the daemon. Called with the arbiter's lock held, so that
// what is stored is what was decided; it must not call back.
class LeaseStore {
 public:
  virtual ~LeaseStore() = default;
  virtual absl::Status Save(const Lease& lease) = 0;
  virtual absl::Status Remove(const std::string& job_id) = 0;
  virtual absl::StatusOr<std::vector<Lease>> Load() = 0;
};

// Any thread. Errors are sentences for the caller's eyes: ALREADY_EXISTS (the job holds other
// devices), FAILED_PRECONDITION (held, leased, quiesced, dirty or not permitted, and by whom),
// INVALID_ARGUMENT, NOT_FOUND, DEADLINE_EXCEEDED.
class DeviceArbiter {
 public:
  // Told, outside the lock, that a device's probe has to end: once for each lease or quiesce.
  using DrainCallback = std::function<void(const std::string& device)>;

  struct Options {
    ProbingPolicy policy = ProbingPolicy::kAllocation;
    absl::Duration grace = absl::Minutes(5);  // after a job's end time
  };

  DeviceArbiter(const Clock& clock, LeaseStore& store, Options options, DrainCallback on_drain);

  // For leases and probes that begin from now on.
  void SetOptions(Options options) ABSL_LOCKS_EXCLUDED(mutex_);

  // Leases of an earlier run. Those of another boot are gone: their jobs are too.
  absl::Status Restore() ABSL_LOCKS_EXCLUDED(mutex_);

  struct Answer {
    LeaseState state = LeaseState::kGranted;
    bool durable = true;  // false: the store could not be written; a restart forgets the lease
  };
  // All devices or none, at once; from then on no probe starts on them. Repeating it with the same
  // job and devices answers as the first did; `remaining` is the job's time limit.
  absl::StatusOr<Answer> Acquire(const std::string& job_id, std::vector<std::string> devices,
                                 int64_t uid, absl::Duration remaining)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until the lease is granted, ended (NOT_FOUND) or the deadline (DEADLINE_EXCEEDED).
  absl::Status Wait(const std::string& job_id, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Renew(const std::string& job_id, absl::Duration remaining)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Releasing what is not held is no error: an epilog may run twice.
  void Release(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends what is over, and stores what could not be stored when it happened; returns the jobs whose
  // leases ended.
  std::vector<std::string> Expire() ABSL_LOCKS_EXCLUDED(mutex_);

  // The right to probe a device; gives it back when destroyed. Move-only.
  class Permit {
   public:
    Permit() = default;
    Permit(DeviceArbiter* arbiter, std::string device)
        : arbiter_(arbiter), device_(std::move(device)) {}
    Permit(Permit&& other) noexcept : arbiter_(other.arbiter_), device_(std::move(other.device_)) {
      other.arbiter_ = nullptr;
    }
    Permit& operator=(Permit&& other) noexcept;
    ~Permit();

   private:
    DeviceArbiter* arbiter_ = nullptr;
    std::string device_;
  };
  // Whose probe it is: inside a lease only its job's, if its user says so.
  struct Claim {
    std::string job_id;  // empty: of no job
    int64_t uid = 0;     // the study's owner
  };
  // FAILED_PRECONDITION if no such probe can begin while the policy is what it is now.
  absl::Status Admit(const std::string& device, const Claim& claim) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `host` and modelled devices are open under every policy but kOff's for `host`.
  absl::StatusOr<Permit> BeginProbe(const std::string& device, const Claim& claim)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Sets devices aside for a driver reload or repartitioning; probes are drained. Idempotent.
  void Quiesce(const std::vector<std::string>& devices) ABSL_LOCKS_EXCLUDED(mutex_);
  void Resume(const std::vector<std::string>& devices) ABSL_LOCKS_EXCLUDED(mutex_);
  // It did not come back to its baseline; no probe starts until it is clean.
  void MarkDirty(const std::string& device, const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void MarkClean(const std::string& device) ABSL_LOCKS_EXCLUDED(mutex_);

  struct DeviceView {
    bool probing = false;
    bool quiesced = false;
    std::string leased_by;  // job id; empty for none
    std::string dirty;      // why; empty for clean
  };
  DeviceView View(const std::string& device) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Lease> Leases() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Device {
    bool probing = false;
    bool quiesced = false;
    std::string leased_by;
    std::string dirty;
  };

  void EndProbe(const std::string& device) ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MakeDurable(Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LeaseState StateOf(const Lease& lease) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MayLease(const std::string& job_id, const std::vector<std::string>& devices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MayEverProbe(const std::string& device, const Claim& claim) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MayProbe(const std::string& device, const Claim& claim)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drain(const std::vector<std::string>& devices);
  absl::Duration EndAfter(absl::Duration remaining) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  LeaseStore& store_;
  const DrainCallback on_drain_;

  mutable absl::Mutex mutex_;
  Options options_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Lease> leases_ ABSL_GUARDED_BY(mutex_);
  // Jobs whose leases are over but still stored: the disk was full.
  std::set<std::string> not_removed_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Device> devices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon

#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/time.h>

#include <memory>
#include <set>
#include <string>

#include "daemon/base/log.h"
#include "hbmtune/v1/devices.grpc.pb.h"

namespace hbmtune::daemon {

// A private daemon asks the node's own for a device before it probes there: two that probe at once
// would spoil each other's figures. Where there is no daemon of the node, the device's lock alone
// keeps them apart. Any thread.
class NodeLease {
 public:
  // `socket`: the node's daemon's. `name`: of this private daemon, the same after a restart; its
  // leases go by it.
  NodeLease(std::string socket, std::string name, const Log& log);
  ~NodeLease();  // gives back what it holds

  // Holds the device for at least so long from now, which may be repeated. OK also when no daemon
  // answers. FAILED_PRECONDITION: the node's daemon refuses or still stops a probe, in a sentence;
  // ask again.
  absl::Status Hold(const std::string& device, absl::Duration time) ABSL_LOCKS_EXCLUDED(mutex_);
  // The device may be others' again. Releasing what is not held is no error.
  void Release(const std::string& device) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  v1::Devices::Stub& Stub() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string JobOf(const std::string& device) const { return name_ + ":" + device; }
  void ReleaseHeld(const std::string& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string socket_;
  const std::string name_;
  const Log& log_;
  absl::Mutex mutex_;
  std::unique_ptr<v1::Devices::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon

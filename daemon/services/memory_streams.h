#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>
#include <grpcpp/support/server_callback.h>

#include <set>
#include <string>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/monitor/job_monitors.h"
#include "hbmtune/v1/devices.pb.h"

namespace hbmtune::daemon {

// The WatchMemory streams, served by one thread that sleeps while there are none. A stream holds
// one message at most: a sample that is due while its client still reads the last one is counted
// instead of kept.
class MemoryStreams {
 public:
  MemoryStreams(const JobMonitors& monitors, const Clock& clock);
  // After the last stream is gone.
  ~MemoryStreams();

  // A stream of its own making, for gRPC; `device` by its own name.
  grpc::ServerWriteReactor<v1::MemorySample>* Open(const std::string& device,
                                                   absl::Duration period);
  // A stream that ends at once.
  static grpc::ServerWriteReactor<v1::MemorySample>* Refuse(const grpc::Status& status);
  // There is a new finding: streams tell it without waiting for their period.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends every stream with UNAVAILABLE: the daemon leaves.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Stream;

  void Run();
  bool Awake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken_ || closing_; }
  void Remove(Stream* stream) ABSL_LOCKS_EXCLUDED(mutex_);

  const JobMonitors& monitors_;
  const Clock& clock_;
  absl::Mutex mutex_;  // held while streams are looked after: Remove waits for that
  std::set<Stream*> streams_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hbmtune::daemon

#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/time.h>

#include <functional>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/smi/smi_helper.h"

namespace hbmtune::daemon {

// What only the ROCm SMI library knows, asked of the helper now and then by a thread of its own:
// whatever becomes of library and helper, nobody else waits. Any thread.
class SmiFeed {
 public:
  // Whether the library may be touched now: there are GPUs, and nobody probes or reloads them.
  using MayAsk = std::function<bool()>;

  SmiFeed(const Clock& clock, SmiHelper::Options options, MayAsk may_ask, const Log& log,
          absl::Duration period = absl::Seconds(10));
  ~SmiFeed();  // ends the helper
  SmiFeed(const SmiFeed&) = delete;
  SmiFeed& operator=(const SmiFeed&) = delete;

  // The last answer; empty when the last question had none.
  std::vector<SmiSample> Samples() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool up() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run();
  void Ask() ABSL_LOCKS_EXCLUDED(mutex_);

  SmiHelper helper_;  // used by the thread alone
  const MayAsk may_ask_;
  const Log& log_;
  const absl::Duration period_;
  mutable absl::Mutex mutex_;
  std::vector<SmiSample> samples_ ABSL_GUARDED_BY(mutex_);
  bool up_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;  // that it is down
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hbmtune::daemon

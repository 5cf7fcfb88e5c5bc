#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/lock_file.h"
#include "daemon/base/log.h"
#include "daemon/prober/cancellation.h"
#include "daemon/prober/probe_link.h"
#include "daemon/prober/reaper.h"
#include "daemon/prober/stop_ladder.h"
#include "hbmtune/v1/probe.pb.h"
#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune::daemon {

// One trial for hbmtune-probe, or a calibration.
struct ProbeTask {
  std::string trial;  // "studies/7/trials/3"
  Workload workload;
  TrainConfig config;
  std::string device;
  int64_t memory_bytes = 0;
  int64_t seed = 0;
  int64_t warmup_steps = 1;
  int64_t min_steps = 1;  // with the warm-up two: the second one has the optimizer's state
  int64_t max_steps = 20;
  double step_budget_seconds = 1;
  absl::Duration deadline = absl::Minutes(5);
  // Of a GPU: the one that the probe may see, by its unique id; empty elsewhere.
  std::string gpu_unique_id;
  // Set: no trial, the device (`host`) is measured; of the rest only trial, device and deadline
  // count.
  std::optional<double> calibration_seconds;
  int64_t threads = 0;  // of a calibration; 0: all cores
};

// A step that a running probe has finished.
struct ProbeStep {
  int64_t index = 0;
  double seconds = 0;
  double loss = 0;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
};

struct ProbeObserver {
  // The device's lock is held and no earlier probe is left: a status keeps the probe from starting
  // and is Run's.
  std::function<absl::Status()> locked = [] { return absl::OkStatus(); };
  // There is a probe. 0: its process is not known yet; called again when it is.
  std::function<void(int64_t pid)> started = [](int64_t) {};
  std::function<void(const ProbeStep&)> step = [](const ProbeStep&) {};
  // Of a calibration: how far it is, and before its end the profile as TOML.
  std::function<void(double done_ratio, const std::string& what)> calibrating =
      [](double, const std::string&) {};
  std::function<void(const std::string& profile_toml)> calibrated = [](const std::string&) {};
};

// Runs probes, one process each, under their device's lock: as children, or where there is a
// `probe_socket` in the unit behind it. Ignores SIGPIPE for the process.
class Prober {
 public:
  struct Settings {
    std::string probe_path;
    std::string lock_directory;
    std::string journal_path;      // empty: none
    std::string result_directory;  // of results that were not stored yet; empty: none
    StopLadder::Times stop;
    std::string probe_socket = {};  // empty: probes are children, of probe_path
  };
  Prober(Settings settings, const Clock& clock, const Log& log);

  // Blocks until the probe is gone. However it ended, there is a measurement: what it reported, or
  // CRASHED, TIMEOUT, CANCELLED or DEVICE_LOST with a sentence. A status only if there was no
  // probe: the program cannot be started, or its socket (FAILED_PRECONDITION: that may change) or
  // the device's lock cannot be had. Any thread.
  // A result that an earlier daemon of this state did not live to store is returned as it is.
  absl::StatusOr<Measurement> Run(const ProbeTask& task, const Cancellation& cancellation,
                                  const ProbeObserver& observer) const;
  // Starts no probe: only the result that an earlier daemon of this state did not live to store,
  // nothing if there is none. Waits for a probe of that daemon as Run does.
  absl::StatusOr<std::optional<Measurement>> Collect(const ProbeTask& task,
                                                     const Cancellation& cancellation) const;
  // The task's measurement is stored: the probe's own copy may go.
  void Forget(const ProbeTask& task) const;
  // Removes the probes' copies but those of these trials ("studies/7/trials/3").
  void ForgetAllBut(const std::set<std::string>& trials) const;
  // Reaps probes that could not be killed and have ended since. To be called now and then.
  void ReapLost() const;

 private:
  absl::StatusOr<LockFile> Lock(const ProbeTask& task, const Cancellation& cancellation) const;
  // Says in the request where journal and result go, and starts who is to get it.
  absl::StatusOr<std::unique_ptr<ProbeLink>> Start(v1::ProbeRequest& request, int lock_fd,
                                                   const std::string& result_path) const;
  absl::StatusOr<std::unique_ptr<ProbeLink>> StartInUnit(v1::ProbeRequest& request, int lock_fd,
                                                         const std::string& result_path) const;

  const Settings settings_;
  const Clock& clock_;
  const Log& log_;
  mutable Reaper lost_;
};

}  // namespace hbmtune::daemon

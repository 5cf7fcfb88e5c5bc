#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/server.h>

#include <memory>
#include <optional>

#include "daemon/base/clock.h"
#include "daemon/base/lock_file.h"
#include "daemon/base/log.h"
#include "daemon/base/worker_pool.h"
#include "daemon/devices/catalogue.h"
#include "daemon/devices/gpu_guard.h"
#include "daemon/http/http_server.h"
#include "daemon/http/metrics.h"
#include "daemon/http/status_page.h"
#include "daemon/leases/arbiter.h"
#include "daemon/monitor/job_monitors.h"
#include "daemon/net/acceptor.h"
#include "daemon/net/peers.h"
#include "daemon/node/node_lease.h"
#include "daemon/options.h"
#include "daemon/prober/prober.h"
#include "daemon/services/access.h"
#include "daemon/services/devices_service.h"
#include "daemon/services/lease_waiters.h"
#include "daemon/services/memory_streams.h"
#include "daemon/services/tcp_server.h"
#include "daemon/services/tuning_service.h"
#include "daemon/smi/smi_feed.h"
#include "daemon/store/baseline_table.h"
#include "daemon/store/database.h"
#include "daemon/store/lease_table.h"
#include "daemon/store/memory_store.h"
#include "daemon/store/study_store.h"
#include "daemon/studies/calibrator.h"
#include "daemon/studies/manager.h"
#include "daemon/studies/recommender.h"
#include "daemon/telemetry/sampler.h"

namespace hbmtune::daemon {

// The daemon with all its rooms, joined. Start, Tick now and then, Drain, destroy.
class Server {
 public:
  // Serves when it returns. Every error is one sentence for the person who started it.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options, LockFile state_lock,
                                                       const Clock& clock, const Log& log);
  ~Server();

  const std::string& socket_path() const { return acceptor_->path(); }
  int http_port() const { return http_ ? http_->port() : 0; }

  // To be called about once a second: ends leases that are over, and looks whether a full disk has
  // room again.
  void Tick();
  // Takes over what ReloadableOptions names; the log says what changed, and what needs a restart.
  // From the thread that calls Tick.
  void Reload(const Options& options);
  // With `private`, whether it is time to leave.
  bool ShouldLeave();
  // Starts to leave: running trials are stopped, calls refused. The destructor waits for them.
  void Drain();

 private:
  Server(const Options& options, LockFile state_lock, const Clock& clock, const Log& log);
  absl::Status OpenParts();
  absl::Status Listen();
  void AddGauges();
  DriverMemory DriverMemoryOf(const std::string& device) const;
  void TellFinding(const JobFinding& finding);
  void StoreMinute(const MinuteRow& row);
  void Apply(const Options& options);
  // FAILED_PRECONDITION: there is room for no connection at all.
  absl::Status CheckRoom() const;
  void PruneStore();
  StudyRunner::NodeHold NodeHold();
  TuningService::Parts TuningParts();
  DevicesService::Parts DevicesParts();
  absl::Status StartTcp();
  void StartTelemetry();
  bool MayAskSmi() const;
  absl::Status StartHttp();
  HttpAnswer Readiness() const;
  StatusView Status();

  Options options_;  // as it was started; what was reloaded is laid over it
  const LockFile state_lock_;
  const Clock& clock_;
  const Log& log_;
  std::atomic<bool> draining_ = false;
  std::atomic<bool> looks_at_gpus_ = false;

  Metrics metrics_;
  Sampler sampler_;
  Catalogue catalogue_;
  JobMonitors monitors_;
  MemoryStreams memory_streams_;
  Prober prober_;
  Peers peers_;
  Access access_;
  std::unique_ptr<Database> database_;
  std::optional<LeaseTable> lease_table_;
  std::optional<DeviceArbiter> arbiter_;
  std::optional<BaselineTable> baseline_table_;
  std::optional<GpuGuard> gpus_;
  std::unique_ptr<LeaseWaiters> lease_waiters_;
  std::optional<StudyStore> store_;
  std::optional<MemoryStore> memory_store_;
  absl::Duration next_prune_;  // since boot
  std::optional<Recommender> recommender_;
  std::unique_ptr<WorkerPool> pool_;
  std::optional<NodeLease> node_lease_;  // of a private daemon
  std::unique_ptr<StudyManager> studies_;
  std::unique_ptr<Calibrator> calibrator_;
  std::unique_ptr<SmiFeed> smi_;
  std::unique_ptr<TuningService> tuning_;
  std::unique_ptr<DevicesService> devices_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<TcpServer> tcp_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace hbmtune::daemon

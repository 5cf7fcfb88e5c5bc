// What the server does with figures: those of GPUs, of jobs, of itself.
#include <absl/time/time.h>

#include <algorithm>
#include <filesystem>

#include "daemon/http/dme_metrics.h"
#include "daemon/http/gpu_metrics.h"
#include "daemon/http/job_metrics.h"
#include "daemon/server.h"
#include "daemon/smi/smi_metrics.h"

namespace hbmtune::daemon {

// A private daemon watches no GPU: the node's own does.
void Server::StartTelemetry() {
  if (options_.private_daemon) return;
  sampler_.Tick();  // studies of GPUs go on at once after a restart
  sampler_.Start();
  if (options_.compat_metrics == CompatMetrics::kDme) {
    metrics_.AddSource(std::make_shared<DmeMetrics>([this] { return sampler_.Devices(); }));
  }
  std::error_code error;
  const auto helper = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() /
                      "hbmtune-smi";
  if (options_.telemetry == TelemetrySource::kSysfs) return;
  if (options_.telemetry == TelemetrySource::kAuto && !std::filesystem::exists(helper)) return;
  SmiHelper::Options smi;
  smi.program = helper.string();
  smi_ = std::make_unique<SmiFeed>(clock_, smi, [this] { return MayAskSmi(); }, log_);
  metrics_.AddSource(std::make_shared<SmiMetrics>(*smi_));
}

bool Server::MayAskSmi() const {
  const std::vector<DeviceState> gpus = sampler_.Devices();
  return !gpus.empty() && std::none_of(gpus.begin(), gpus.end(), [this](const auto& gpu) {
    const DeviceArbiter::DeviceView view = arbiter_->View(gpu.identity.name());
    return view.probing || view.quiesced;
  });
}

void Server::AddGauges() {
  const double start = absl::ToDoubleSeconds(clock_.Now() - absl::UnixEpoch());
  metrics_.AddGauge("hbmtune_start_time_seconds", "When the daemon started, since 1970",
                    [start] { return start; });
  metrics_.AddGauge("hbmtune_running_studies", "Studies that run now",
                    [this] { return static_cast<double>(studies_->running_studies()); });
  metrics_.AddGauge("hbmtune_connections", "Clients connected to the socket",
                    [this] { return static_cast<double>(peers_.count()); });
  metrics_.AddGauge("hbmtune_store_degraded",
                    "1 while the database cannot be written and no probe starts",
                    [this] { return database_->degraded().empty() ? 0.0 : 1.0; });
  metrics_.AddGauge("hbmtune_dirty_gpus", "GPUs that no probe may use until their memory is back",
                    [this] { return static_cast<double>(gpus_->dirty()); });
  metrics_.AddGauge("hbmtune_leases", "Leases that jobs hold",
                    [this] { return static_cast<double>(arbiter_->Leases().size()); });
  metrics_.AddSource(std::make_shared<GpuMetrics>([this] { return sampler_.Devices(); }));
  metrics_.AddSource(std::make_shared<JobMetrics>(monitors_));
}

DriverMemory Server::DriverMemoryOf(const std::string& device) const {
  for (const DeviceState& state : sampler_.Devices()) {
    if (state.identity.name() != device) continue;
    return {state.sample.vram_used_bytes, state.sample.vram_total_bytes};
  }
  return {};
}

void Server::TellFinding(const JobFinding& found) {
  log_.Warning("the memory monitor found something",
               {{"kind", Name(found.finding.kind)},
                {"device", found.device},
                {"job", found.job_id},
                {"step", found.finding.step},
                {"what", found.finding.message}});
  memory_streams_.Wake();
  // A full disk: /readyz and the log have told of it already.
  memory_store_->AddFinding(clock_.Now(), found).IgnoreError();
}

// The sampler counts from boot; what is stored counts from 1970.
void Server::StoreMinute(const MinuteRow& row) {
  const absl::Duration since = clock_.SinceBoot() - absl::Minutes(row.minute);
  memory_store_
      ->AddMinute(row.device,
                  {clock_.Now() - since, row.least_bytes, row.mean_bytes, row.most_bytes})
      .IgnoreError();
}

}  // namespace hbmtune::daemon

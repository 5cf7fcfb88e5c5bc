#include "daemon/server.h"

#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "daemon/http/dme_metrics.h"
#include "daemon/http/gpu_metrics.h"
#include "daemon/http/job_metrics.h"
#include "daemon/services/messages.h"
#include "daemon/smi/smi_metrics.h"
#include "daemon/store/open.h"
#include "daemon/store/retention.h"
#include "kernels/core/json.h"

namespace hbmtune::daemon {
namespace {

// The largest request carries a config.json of at most 1 MiB.
constexpr int kMaxMessageBytes = 4 << 20;
// Calls that still run when the daemon leaves are cut off after this.
constexpr auto kCallPatience = std::chrono::milliseconds(500);

Prober::Settings ProberSettings(const Options& options) {
  return {options.probe_path, options.lock_dir, options.probe_journal, options.state_dir, {}};
}

double Seconds(const Clock& clock) { return absl::ToDoubleSeconds(clock.SinceBoot()); }

std::vector<DeviceProcess> ProcessesOf(const DeviceState& state) {
  std::vector<DeviceProcess> processes;
  for (const GpuProcess& process : state.processes) {
    if (process.vram_bytes == 0) continue;  // it has only opened /dev/kfd
    std::ifstream file(absl::StrCat("/proc/", process.pid, "/comm"));
    std::string program;
    std::getline(file, program);
    std::replace_if(
        program.begin(), program.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    processes.push_back({process.pid, process.vram_bytes, program});
  }
  std::sort(processes.begin(), processes.end(), [](const auto& a, const auto& b) {
    return a.memory_bytes > b.memory_bytes;
  });
  return processes;
}

// The sampler's GPUs as devices; one that has vanished is still listed, without figures.
std::vector<DeviceInfo> GpusOf(const Sampler& sampler) {
  std::vector<DeviceInfo> gpus;
  for (const DeviceState& state : sampler.Devices()) {
    DeviceInfo& gpu = gpus.emplace_back();
    gpu.name = state.identity.name();
    gpu.kind = DeviceKind::kGpu;
    gpu.product = state.identity.product;
    gpu.memory_bytes = state.sample.vram_total_bytes.value_or(0);
    gpu.used_bytes = state.sample.vram_used_bytes;
    gpu.processes = ProcessesOf(state);
    gpu.aliases.push_back(absl::StrCat("hip:", gpus.size() - 1));
    if (!state.identity.uuid.empty()) gpu.aliases.push_back(state.identity.uuid);
    if (state.identity.render_minor >= 0) {
      gpu.aliases.push_back(absl::StrCat("renderD", state.identity.render_minor));
    }
  }
  return gpus;
}

Access::Rules RulesOf(const Options& options) {
  return {options.admin_groups, options.tune_groups, options.read_groups, options.default_role,
          options.tls_users};
}

Acceptor::Limits LimitsOf(const Options& options) {
  return {static_cast<size_t>(options.max_connections),
          static_cast<size_t>(options.max_connections_per_user)};
}

absl::Duration Days(double days) {
  return days == 0 ? absl::InfiniteDuration() : absl::Hours(24 * days);
}

Retention RetentionOf(const Options& options) {
  return {Days(options.keep_studies_days), Days(options.keep_memory_days),
          Days(options.keep_findings_days)};
}

}  // namespace

Server::Server(const Options& options, LockFile state_lock, const Clock& clock, const Log& log)
    : options_(options),
      state_lock_(std::move(state_lock)),
      clock_(clock),
      log_(log),
      sampler_(Sysfs(options.sysfs_root), [&clock] { return Seconds(clock); },
               [this](const MinuteRow& row) { StoreMinute(row); }),
      catalogue_(options.profile_dir, [this] { return GpusOf(sampler_); }),
      monitors_(
          clock, [this](const std::string& device) { return DriverMemoryOf(device); },
          [this](const JobFinding& finding) { TellFinding(finding); }),
      memory_streams_(monitors_, clock),
      prober_(ProberSettings(options), clock, log),
      access_(peers_, RulesOf(options)) {}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options, LockFile state_lock,
                                                      const Clock& clock, const Log& log) {
  std::unique_ptr<Server> server(new Server(options, std::move(state_lock), clock, log));
  absl::Status status = server->OpenParts();
  if (status.ok()) status = server->StartTcp();
  if (status.ok()) status = server->StartHttp();
  if (status.ok()) status = server->Listen();
  if (!status.ok()) return status;
  return server;
}

absl::Status Server::OpenParts() {
  auto database = OpenStore(options_.state_dir, clock_, log_);
  if (!database.ok()) return database.status();
  database_ = *std::move(database);
  store_.emplace(*database_);
  memory_store_.emplace(*database_);
  recommender_.emplace(*store_, catalogue_);
  pool_ = std::make_unique<WorkerPool>(std::clamp(std::thread::hardware_concurrency(), 2U, 8U));
  lease_table_.emplace(*database_);
  arbiter_.emplace(
      clock_, *lease_table_,
      DeviceArbiter::Options{options_.probing, absl::Seconds(options_.lease_grace_seconds)},
      [this](const std::string& device) { studies_->InterruptTrialOn(device); });
  if (absl::Status status = arbiter_->Restore(); !status.ok()) return status;
  lease_waiters_ = std::make_unique<LeaseWaiters>(*arbiter_);
  studies_ = std::make_unique<StudyManager>(StudyManager::Parts{
      *store_, catalogue_, prober_, *arbiter_, clock_, log_,
      [this](const TrialRecord& trial, DeviceKind kind) { metrics_.CountTrial(trial, kind); }});
  tuning_ = std::make_unique<TuningService>(TuningParts());
  devices_ = std::make_unique<DevicesService>(DevicesParts());
  studies_->SetMostOfUser(options_.max_studies_per_user);
  AddGauges();
  StartTelemetry();
  return studies_->Recover();
}

TuningService::Parts Server::TuningParts() {
  return {*studies_, *store_, *recommender_, catalogue_, access_, clock_, *pool_};
}

DevicesService::Parts Server::DevicesParts() {
  return {catalogue_,      *studies_,      *arbiter_, *lease_waiters_, monitors_, memory_streams_,
          *memory_store_, access_, log_,     *pool_};
}

absl::Status Server::StartTcp() {
  if (options_.tcp.empty()) return absl::OkStatus();
  const TlsPaths files{options_.tls_certificate, options_.tls_key, options_.tls_roots,
                       options_.tls_crl_directory};
  auto server = TcpServer::Start({options_.tcp, files, options_.state_dir}, TuningParts(),
                                 DevicesParts(), clock_, log_);
  if (!server.ok()) return server.status();
  tcp_ = *std::move(server);
  metrics_.AddGauge("hbmtune_tls_files_refused",
                    "1 while the newest TLS files are bad and an older set is served",
                    [this] { return tcp_->files_refused() ? 1.0 : 0.0; });
  log_.Info("serves TCP", {{"address", options_.tcp}, {"port", tcp_->port()}});
  return absl::OkStatus();
}

// A private daemon watches no GPU: the node's own does.
void Server::StartTelemetry() {
  if (options_.private_daemon) return;
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

void Server::Reload(const Options& options) {
  const Json before = ToJson(options_);
  const Json after = ToJson(options);
  Json taken = Json::object();
  for (const auto& [key, value] : after.items()) {
    if (before[key] == value || key == "ready_fd") continue;
    if (ReloadableOptions().contains(key)) {
      taken[key] = value;
      log_.Info("a setting is reloaded", {{"setting", key}, {"value", value.dump()}});
    } else {
      log_.Warning("a changed setting needs a restart", {{"setting", key}});
    }
  }
  FromJson(taken, options_);
  Apply(options_);
}

void Server::Apply(const Options& options) {
  log_.SetLevel(options.log_level);
  access_.SetRules(RulesOf(options));
  arbiter_->SetOptions({options.probing, absl::Seconds(options.lease_grace_seconds)});
  acceptor_->SetLimits(LimitsOf(options));
  studies_->SetMostOfUser(options.max_studies_per_user);
  next_prune_ = absl::ZeroDuration();
}

void Server::PruneStore() {
  if (clock_.SinceBoot() < next_prune_) return;
  auto pruned = Prune(*database_, RetentionOf(options_), clock_.Now());
  const bool more = pruned.ok() && pruned->any();
  next_prune_ = clock_.SinceBoot() + (more ? absl::ZeroDuration() : absl::Hours(1));
  if (!more) return;
  store_->NoteChangeOfAll();
  log_.Info("what is old is deleted", {{"studies", pruned->studies},
                                       {"minutes", pruned->minutes},
                                       {"findings", pruned->findings}});
}

absl::Status Server::Listen() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(tuning_.get());
  builder.RegisterService(devices_.get());
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) return absl::InternalError("gRPC does not start");
  const auto parent = std::filesystem::path(options_.socket).parent_path();
  if (absl::Status status = EnsureDirectory(parent.string()); !status.ok()) return status;
  auto socket = UnixSocket::Listen(options_.socket, static_cast<int>(options_.socket_mode));
  if (!socket.ok()) return socket.status();
  acceptor_ = std::make_unique<Acceptor>(
      *std::move(socket), peers_, LimitsOf(options_),
      [this](int fd) { grpc::AddInsecureChannelFromFd(grpc_.get(), fd); });
  return absl::OkStatus();
}

absl::Status Server::StartHttp() {
  if (options_.http == "off") return absl::OkStatus();
  auto server = HttpServer::Start(
      options_.http,
      {{"/metrics", [this] {
          return HttpAnswer{200, "text/plain; version=0.0.4; charset=utf-8", metrics_.Text()};
        }},
       {"/healthz", [] { return HttpAnswer{200, "text/plain", "ok\n"}; }},
       {"/readyz", [this] { return Readiness(); }},
       {"/", [] {
          return HttpAnswer{200, "text/html; charset=utf-8", std::string(StatusPageHtml())};
        }},
       {"/status.json", [this] {
          return HttpAnswer{200, "application/json", StatusJson(Status())};
        }}});
  if (!server.ok()) return server.status();
  http_ = *std::move(server);
  return absl::OkStatus();
}

StatusView Server::Status() {
  constexpr int64_t kStudies = 10;
  constexpr int64_t kTrials = 1000;
  StatusView view;
  char hostname[256] = {};
  gethostname(hostname, sizeof hostname - 1);
  view.hostname = hostname;
  view.version = HBMTUNE_VERSION;
  view.degraded = database_->degraded();
  for (DeviceInfo& info : catalogue_.List()) {
    const StudyManager::Load load = studies_->LoadOf(info.name);
    // Modelled devices are always there: shown while one is used.
    if (info.kind == DeviceKind::kModel && load.running_study == 0) continue;
    StatusView::Device& device = view.devices.emplace_back();
    const auto state = StateOf(arbiter_->View(info.name), load.running_study > 0);
    device.state = v1::DeviceState_Name(state).substr(std::string("DEVICE_STATE_").size());
    device.now_seconds = Seconds(clock_);
    for (const VramPoint& point : sampler_.History(info.name)) {
      device.history.emplace_back(point.seconds, point.used_bytes);
    }
    device.info = std::move(info);
  }
  view.findings = monitors_.FindingsSince(0);
  std::reverse(view.findings.begin(), view.findings.end());
  auto studies = studies_->List(0, kStudies);
  if (!studies.ok()) return view;
  for (StudyRecord& study : *studies) {
    auto trials = store_->ListTrials(study.id, 0, kTrials);
    if (trials.ok()) view.studies.push_back({std::move(study), *std::move(trials)});
  }
  return view;
}

HttpAnswer Server::Readiness() const {
  if (draining_) return {503, "text/plain", "draining\n"};
  const std::string degraded = database_->degraded();
  if (!degraded.empty()) return {503, "text/plain", absl::StrCat("degraded: ", degraded, "\n")};
  return {200, "text/plain", "ok\n"};
}

void Server::Tick() {
  if (tcp_ != nullptr) tcp_->Refresh();
  PruneStore();
  prober_.ReapLost();
  database_->TryToRecover();
  for (const std::string& job : arbiter_->Expire()) {
    log_.Warning("lease has ended by itself", {{"job", job}});
  }
}

bool Server::ShouldLeave() {
  if (!options_.private_daemon) return false;
  if (acceptor_->IdleFor() < absl::Seconds(options_.idle_exit_seconds)) return false;
  studies_->CancelAttached("its client left");
  return !studies_->HasUnfinished() && acceptor_->CloseIfUnused();
}

void Server::Drain() {
  if (draining_.exchange(true)) return;
  if (grpc_ != nullptr) grpc_->GetHealthCheckService()->SetServingStatus(false);
  if (studies_ != nullptr) studies_->Drain();
}

Server::~Server() {
  Drain();
  acceptor_.reset();
  memory_streams_.Close();
  // Calls that wait for a study end with it; the others are cut off.
  if (grpc_ != nullptr) grpc_->Shutdown(std::chrono::system_clock::now() + kCallPatience);
  http_.reset();
  tcp_.reset();
  smi_.reset();
  lease_waiters_.reset();
  studies_.reset();
  pool_.reset();
  sampler_.Stop();
}

}  // namespace hbmtune::daemon

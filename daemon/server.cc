#include "daemon/server.h"

#include <absl/strings/str_cat.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "daemon/devices/gpus.h"
#include "daemon/store/open.h"
#include "daemon/store/retention.h"
#include "kernels/core/hash.h"
#include "kernels/core/json.h"

namespace hbmtune::daemon {
namespace {

// The largest request carries a config.json of at most 1 MiB.
constexpr int kMaxMessageBytes = 4 << 20;
// More calls wait at the client until one of these has ended.
constexpr int kMostCallsOfAConnection = 1024;
// Calls that still run when the daemon leaves are cut off after this.
constexpr auto kCallPatience = std::chrono::milliseconds(500);

Prober::Settings ProberSettings(const Options& options) {
  return {options.probe_path, options.lock_dir, options.probe_journal,
          options.state_dir,  {},               options.probe_socket};
}

double Seconds(const Clock& clock) { return absl::ToDoubleSeconds(clock.SinceBoot()); }

Access::Rules RulesOf(const Options& options) {
  return {options.admin_groups, options.tune_groups, options.read_groups, options.default_role,
          options.tls_users, static_cast<double>(options.max_requests_per_user)};
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
      access_(peers_, clock, RulesOf(options)) {}

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
      [this](const std::string& device) {
        studies_->InterruptTrialOn(device);
        calibrator_->InterruptOn(device);
      });
  if (absl::Status status = arbiter_->Restore(); !status.ok()) return status;
  baseline_table_.emplace(*database_);
  gpus_.emplace(Sysfs(options_.sysfs_root), *arbiter_, *baseline_table_, clock_, log_);
  if (absl::Status status = gpus_->Restore(); !status.ok()) return status;
  lease_waiters_ = std::make_unique<LeaseWaiters>(*arbiter_);
  const StudyRunner::NodeHold node_hold = NodeHold();
  studies_ = std::make_unique<StudyManager>(StudyManager::Parts{
      *store_, catalogue_, prober_, *arbiter_, *gpus_, clock_, log_,
      [this](const TrialRecord& trial, DeviceKind kind) { metrics_.CountTrial(trial, kind); },
      node_hold});
  calibrator_ = std::make_unique<Calibrator>(
      Calibrator::Parts{prober_, *arbiter_, node_hold, options_.profile_dir, log_});
  tuning_ = std::make_unique<TuningService>(TuningParts());
  devices_ = std::make_unique<DevicesService>(DevicesParts());
  studies_->SetMostOfUser(options_.max_studies_per_user);
  AddGauges();
  StartTelemetry();
  return studies_->Recover();
}

StudyRunner::NodeHold Server::NodeHold() {
  if (!options_.private_daemon) return {};
  const std::string state = HashText(options_.state_dir).substr(0, 12);
  node_lease_.emplace(options_.node_socket, absl::StrCat("private-", geteuid(), "-", state), log_);
  return {[this](const std::string& device, absl::Duration time) {
            return node_lease_->Hold(device, time);
          },
          [this](const std::string& device) { node_lease_->Release(device); }};
}

TuningService::Parts Server::TuningParts() {
  return {*studies_, *store_, *recommender_, catalogue_, access_, clock_, *pool_};
}

DevicesService::Parts Server::DevicesParts() {
  return {catalogue_, *studies_,       *arbiter_,      *gpus_,  *calibrator_, *lease_waiters_,
          monitors_,  memory_streams_, *memory_store_, access_, log_,         *pool_};
}

absl::Status Server::StartTcp() {
  if (options_.tcp.empty()) return absl::OkStatus();
  const TlsPaths files{options_.tls_certificate, options_.tls_key, options_.tls_roots,
                       options_.tls_crl_directory};
  auto server = TcpServer::Start(
      {options_.tcp, files, options_.state_dir, absl::Seconds(options_.tls_connection_seconds)},
      TuningParts(), DevicesParts(), clock_, log_);
  if (!server.ok()) return server.status();
  tcp_ = *std::move(server);
  metrics_.AddGauge("hbmtune_tls_files_refused",
                    "1 while the newest TLS files are bad and an older set is served",
                    [this] { return tcp_->files_refused() ? 1.0 : 0.0; });
  log_.Info("serves TCP", {{"address", options_.tcp}, {"port", tcp_->port()}});
  return absl::OkStatus();
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
  CheckRoom().IgnoreError();  // there was room when it started
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
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsOfAConnection);
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
  return CheckRoom();
}

absl::Status Server::CheckRoom() const {
  constexpr char kRemedy[] = "raise LimitNOFILE= of its unit, or ulimit -n";
  if (acceptor_->room() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("a limit of ", acceptor_->file_limit(),
                     " open files leaves no room for connections: ", kRemedy));
  }
  if (acceptor_->room() >= static_cast<size_t>(options_.max_connections)) return absl::OkStatus();
  log_.Warning("the limit of open files caps the connections",
               {{"open_files", acceptor_->file_limit()},
                {"connections", acceptor_->room()},
                {"max_connections", options_.max_connections},
                {"remedy", kRemedy}});
  return absl::OkStatus();
}

void Server::Tick() {
  if (tcp_ != nullptr) tcp_->Refresh();
  PruneStore();
  prober_.ReapLost();
  database_->TryToRecover();
  // On a worker's thread: a driver that is in trouble may hold a reader up.
  if (gpus_->dirty() > 0 && !looks_at_gpus_.exchange(true)) {
    pool_->Post([this] {
      gpus_->Tick();
      looks_at_gpus_ = false;
    });
  }
  for (const std::string& job : arbiter_->Expire()) {
    log_.Warning("lease has ended by itself", {{"job", job}});
  }
}

bool Server::ShouldLeave() {
  if (!options_.private_daemon) return false;
  if (acceptor_->IdleFor() < absl::Seconds(options_.idle_exit_seconds)) return false;
  studies_->CancelAttached("its client left");
  // Cancelled studies whose end cannot be stored would keep it for as long as the disk is full.
  const bool stuck = !database_->degraded().empty();
  return !studies_->HasUnfinished(stuck) && acceptor_->CloseIfUnused();
}

void Server::Drain() {
  if (draining_.exchange(true)) return;
  if (grpc_ != nullptr) grpc_->GetHealthCheckService()->SetServingStatus(false);
  if (studies_ != nullptr) studies_->Drain();
  if (calibrator_ != nullptr) calibrator_->Stop();
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
  calibrator_.reset();
  studies_.reset();
  pool_.reset();
  sampler_.Stop();
}

}  // namespace hbmtune::daemon

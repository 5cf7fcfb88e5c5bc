#include "daemon/services/tcp_server.h"

#include <absl/strings/str_cat.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/server_builder.h>

#include <chrono>

namespace hbmtune::daemon {
namespace {

constexpr int kMaxMessageBytes = 4 << 20;  // both as on the Unix socket
constexpr int kMostCallsOfAConnection = 1024;
constexpr int kAgeGraceMs = 60'000;
constexpr unsigned kLookEverySeconds = 1;

std::shared_ptr<grpc::ServerCredentials> Credentials(const TlsPaths& served) {
  using grpc::experimental::FileWatcherCertificateProvider;
  auto provider = std::make_shared<FileWatcherCertificateProvider>(
      served.key, served.certificate, served.roots, kLookEverySeconds);
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  if (!served.crl_directory.empty()) options.set_crl_directory(served.crl_directory);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace

TcpServer::TcpServer(const Options& options, const TuningService::Parts& tuning,
                     const DevicesService::Parts& devices, const Clock& clock, const Log& log)
    : clock_(clock),
      log_(log),
      files_(options.files, options.state_dir + "/tls"),
      tuning_(tuning),
      devices_(devices) {}

absl::StatusOr<std::unique_ptr<TcpServer>> TcpServer::Start(const Options& options,
                                                            const TuningService::Parts& tuning,
                                                            const DevicesService::Parts& devices,
                                                            const Clock& clock, const Log& log) {
  std::unique_ptr<TcpServer> server(new TcpServer(options, tuning, devices, clock, log));
  auto read = server->files_.Refresh(clock.Now());
  if (!read.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("tcp: ", std::string(read.status().message()), " (", options.files.certificate,
                     ", ", options.files.key, ", ", options.files.roots, ")"));
  }
  if (absl::Status status = server->Listen(options); !status.ok()) return status;
  return server;
}

absl::Status TcpServer::Listen(const Options& options) {
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsOfAConnection);
  builder.AddChannelArgument(
      GRPC_ARG_MAX_CONNECTION_AGE_MS,
      static_cast<int>(absl::ToInt64Milliseconds(options.longest_connection)));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kAgeGraceMs);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(options.address,
                           Credentials(files_.served()), &port_);
  builder.RegisterService(&tuning_);
  builder.RegisterService(&devices_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port_ == 0) {
    return absl::UnavailableError(absl::StrCat("tcp: cannot listen on ", options.address,
                                               ": it is taken, or no address of this node"));
  }
  return absl::OkStatus();
}

TcpServer::~TcpServer() {
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  }
}

void TcpServer::Refresh() {
  auto changed = files_.Refresh(clock_.Now());
  const bool was = refused_.exchange(files_.refused());
  if (!changed.ok() && !was) {
    log_.Error("new TLS files are refused, the old ones stay", {{"error", changed.status()}});
  } else if (changed.ok() && *changed) {
    log_.Info("new TLS files are served");
  }
}

}  // namespace hbmtune::daemon

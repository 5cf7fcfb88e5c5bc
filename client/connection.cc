#include "client/connection.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdlib>
#include <utility>

#include "client/local_daemon.h"
#include "client/socket_path.h"
#include "client/text.h"

namespace hbmtune::client {
namespace {

// Whether the daemon answers: a private one may be leaving while we join it, and a remote one may
// want other certificates.
absl::Status Greet(const Connection& connection, std::chrono::seconds time) {
  v1::GetDeviceRequest request;
  request.set_name("host");
  return Call(connection.devices(), &v1::Devices::StubInterface::GetDevice, request, time).status();
}

// It was started for us, maybe by another command: nobody else knows that it is there.
absl::Status Hung(const std::string& socket) {
  const std::string pid = std::to_string(ListenerOf(socket));
  return absl::UnavailableError("the private daemon (process " + pid + ") does not answer: end " +
                                "it with kill " + pid + ", or where that does not help with " +
                                "kill -9 " + pid + "; what its studies have found is kept");
}

absl::StatusOr<std::unique_ptr<Connection>> ConnectLocal(const LocalDaemon& daemon) {
  constexpr int kAttempts = 3;
  absl::Status status;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto socket = daemon.JoinOrStart();
    if (!socket.ok()) return socket.status();
    auto connection = std::make_unique<Connection>(*socket);
    status = Greet(*connection, std::chrono::seconds(15));  // gRPC itself gives up after 20
    if (absl::IsDeadlineExceeded(status)) return Hung(*socket);
    if (!absl::IsUnavailable(status)) return connection;
  }
  return status;
}

absl::StatusOr<std::unique_ptr<Connection>> ConnectTo(const std::string& socket) {
  if (absl::Status status = Probe(socket); !status.ok()) return status;
  return std::make_unique<Connection>(socket);
}

absl::StatusOr<std::unique_ptr<Connection>> ConnectRemote(const std::string& address,
                                                          const TlsPaths& tls) {
  auto remote = OpenRemote(address, tls);
  if (!remote.ok()) return remote.status();
  auto connection = std::make_unique<Connection>(*remote);
  absl::Status status = Greet(*connection, std::chrono::seconds(10));
  const bool answers = !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status);
  if (!answers) return ExplainRemote(address, tls, status);
  return connection;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// One of the three says which daemon.
absl::Status CheckTogether(const ConnectionFlags& flags) {
  const RemoteFlags& remote = flags.remote;
  if (!remote.address.empty() && (flags.local || !flags.socket.empty())) {
    return absl::InvalidArgumentError(std::string("--address and ") +
                                      (flags.local ? "--local" : "--socket") +
                                      " name two daemons: give one of them");
  }
  const TlsPaths& tls = remote.tls;
  const bool files = !tls.roots.empty() || !tls.certificate.empty() || !tls.key.empty();
  const bool tcp = !remote.address.empty() || !Variable("HBMTUNE_ADDRESS").empty();
  if (files && (!tcp || flags.local || !flags.socket.empty())) {
    return absl::InvalidArgumentError("--tls-… is for --address: a socket needs no certificate");
  }
  return absl::OkStatus();
}

}  // namespace

void ConnectionFlags::AddTo(CLI::App& app) {
  const std::string group = "which daemon";
  app.add_flag("--local", local,
               "use the private daemon of this user; start it unless it runs. It leaves 5 s "
               "after its last client")
      ->group(group);
  app.add_option("--socket", socket,
                 "the daemon's socket [$HBMTUNE_SOCKET, the system's daemon, or the private one]")
      ->type_name("PATH")
      ->group(group);
  remote.AddTo(app);
}

std::string ConnectionFlags::Words() const {
  std::string words = local ? " --local" : "";
  const std::pair<const char*, const std::string&> given[] = {
      {"--socket", socket},
      {"--address", remote.address},
      {"--tls-ca", remote.tls.roots},
      {"--tls-cert", remote.tls.certificate},
      {"--tls-key", remote.tls.key}};
  for (const auto& [flag, value] : given) {
    if (!value.empty()) words += std::string(" ") + flag + " " + ShellWord(value);
  }
  return words;
}

Connection::Connection(const std::string& socket) {
  Open("unix:" + ShortSocketPath(socket, folder_), grpc::InsecureChannelCredentials());
}

Connection::Connection(const Remote& remote) { Open(remote.target, remote.credentials); }

void Connection::Open(const std::string& target,
                      const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  // A daemon that restarts is back in well under a second; gRPC would wait for one or more.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  auto channel = grpc::CreateCustomChannel(target, credentials, arguments);
  tuning_ = v1::Tuning::NewStub(channel);
  devices_ = v1::Devices::NewStub(channel);
}

absl::StatusOr<std::unique_ptr<Connection>> Connect(const ConnectionFlags& flags) {
  if (absl::Status status = CheckTogether(flags); !status.ok()) return status;
  if (flags.local) return ConnectLocal(LocalDaemon(flags.socket));
  if (!flags.socket.empty()) return ConnectTo(flags.socket);
  const TlsPaths tls = flags.remote.TlsOrEnvironment();
  if (!flags.remote.address.empty()) return ConnectRemote(flags.remote.address, tls);
  if (std::string socket = Variable("HBMTUNE_SOCKET"); !socket.empty()) return ConnectTo(socket);
  if (std::string address = Variable("HBMTUNE_ADDRESS"); !address.empty()) {
    return ConnectRemote(address, tls);
  }
  absl::Status status = Probe(kSystemSocket);
  if (status.ok()) return std::make_unique<Connection>(kSystemSocket);
  LocalDaemon private_daemon;
  if (Probe(private_daemon.socket()).ok()) return ConnectTo(private_daemon.socket());
  return absl::UnavailableError(std::string(status.message()) +
                                "; start hbmtuned, or add --local for a private daemon");
}

}  // namespace hbmtune::client

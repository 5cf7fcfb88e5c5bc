#include "client/connection.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdlib>

#include "client/local_daemon.h"
#include "client/socket_path.h"

namespace hbmtune::client {
namespace {

// Whether the daemon answers: a private one may be leaving while we join it.
absl::Status Greet(const Connection& connection) {
  v1::GetDeviceRequest request;
  request.set_name("host");
  constexpr std::chrono::seconds kTime{10};
  return Call(connection.devices(), &v1::Devices::StubInterface::GetDevice, request, kTime)
      .status();
}

absl::StatusOr<std::unique_ptr<Connection>> ConnectLocal(const LocalDaemon& daemon) {
  constexpr int kAttempts = 3;
  absl::Status status;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto socket = daemon.JoinOrStart();
    if (!socket.ok()) return socket.status();
    auto connection = std::make_unique<Connection>(*socket);
    status = Greet(*connection);
    if (!absl::IsUnavailable(status)) return connection;
  }
  return status;
}

absl::StatusOr<std::unique_ptr<Connection>> ConnectTo(const std::string& socket) {
  if (absl::Status status = Probe(socket); !status.ok()) return status;
  return std::make_unique<Connection>(socket);
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
}

Connection::Connection(std::string socket) : socket_(std::move(socket)) {
  // A daemon that restarts is back in well under a second; gRPC would wait for one or more.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  channel_ = grpc::CreateCustomChannel("unix:" + ShortSocketPath(socket_, folder_),
                                       grpc::InsecureChannelCredentials(), arguments);
  tuning_ = v1::Tuning::NewStub(channel_);
  devices_ = v1::Devices::NewStub(channel_);
}

absl::StatusOr<std::unique_ptr<Connection>> Connect(const ConnectionFlags& flags) {
  if (flags.local) return ConnectLocal(LocalDaemon(flags.socket));
  if (!flags.socket.empty()) return ConnectTo(flags.socket);
  if (const char* socket = std::getenv("HBMTUNE_SOCKET"); socket && *socket) {
    return ConnectTo(socket);
  }
  absl::Status status = Probe(kSystemSocket);
  if (status.ok()) return std::make_unique<Connection>(kSystemSocket);
  LocalDaemon private_daemon;
  if (Probe(private_daemon.socket()).ok()) return ConnectTo(private_daemon.socket());
  return absl::UnavailableError(std::string(status.message()) +
                                "; start hbmtuned, or add --local for a private daemon");
}

}  // namespace hbmtune::client

#pragma once

#include <CLI/App.hpp>
#include <absl/status/statusor.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <string>

#include "client/errors.h"
#include "client/file_descriptor.h"
#include "client/remote.h"
#include "hbmtune/v1/devices.grpc.pb.h"
#include "hbmtune/v1/tuning.grpc.pb.h"

namespace hbmtune::client {

// Which daemon.
struct ConnectionFlags {
  std::string socket;
  bool local = false;
  RemoteFlags remote = {};

  void AddTo(CLI::App& app);
  // The flags that were given, for a command that reaches the same daemon: " --local", "".
  std::string Words() const;
};

// A channel to a daemon. Calls may come from several threads.
class Connection {
 public:
  // Takes the path as it is; nothing is opened yet but the folder of a path that is too long for
  // a socket address (over 107 bytes).
  explicit Connection(const std::string& socket);
  explicit Connection(const Remote& remote);

  v1::Tuning::StubInterface& tuning() const { return *tuning_; }
  v1::Devices::StubInterface& devices() const { return *devices_; }
 private:
  void Open(const std::string& target,
            const std::shared_ptr<grpc::ChannelCredentials>& credentials);

  FileDescriptor folder_;  // a long path is reached through /proc/self/fd: keep it open
  std::unique_ptr<v1::Tuning::StubInterface> tuning_;
  std::unique_ptr<v1::Devices::StubInterface> devices_;
};

// The daemon that the flags name: --socket or --address, $HBMTUNE_SOCKET, $HBMTUNE_ADDRESS, the
// system's, or the private one of this user, which --local starts unless it runs. UNAVAILABLE says
// where nobody answered and why; INVALID_ARGUMENT what is wrong with a flag.
absl::StatusOr<std::unique_ptr<Connection>> Connect(const ConnectionFlags& flags);

inline constexpr std::chrono::seconds kCallTime{60};

// One unary call: Call(connection.tuning(), &v1::Tuning::StubInterface::GetStudy, request).
template <class Stub, class Request, class Response>
absl::StatusOr<Response> Call(Stub& stub,
                              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                              const Request& request, std::chrono::seconds time = kCallTime) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + time);
  Response response;
  grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

}  // namespace hbmtune::client

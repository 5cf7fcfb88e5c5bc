#include "tests/client/fake_daemon.h"

#include <grpcpp/server_builder.h>

#include <chrono>
#include <stdexcept>

#include "client/socket_path.h"

namespace hbmtune::client {

FakeDaemon::FakeDaemon(const std::string& socket) {
  FileDescriptor folder;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + ShortSocketPath(socket, folder),
                           grpc::InsecureServerCredentials());
  builder.RegisterService(static_cast<v1::Tuning::Service*>(this));
  builder.RegisterService(static_cast<v1::Devices::Service*>(this));
  server_ = builder.BuildAndStart();
  if (!server_) throw std::runtime_error("cannot listen on " + socket);
}

FakeDaemon::~FakeDaemon() { server_->Shutdown(std::chrono::system_clock::now()); }

}  // namespace hbmtune::client

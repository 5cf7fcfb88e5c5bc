#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/net/tls_files.h"
#include "daemon/services/devices_service.h"
#include "daemon/services/tuning_service.h"

namespace hbmtune::daemon {

// Both services over TCP, only with mutual TLS: a client without a certificate that leads to the
// roots is not let in, and who he is stands in the certificate (Access). A connection has an end,
// and with it what its certificate was good for: after that the files decide anew.
class TcpServer {
 public:
  struct Options {
    std::string address;        // "0.0.0.0:9465"
    TlsPaths files;
    std::string state_dir;      // STATE_DIR/tls is its own
    absl::Duration longest_connection = absl::Hours(1);  // calls that run then have a minute more
  };
  // FAILED_PRECONDITION, UNAVAILABLE: one sentence for whoever starts the daemon.
  static absl::StatusOr<std::unique_ptr<TcpServer>> Start(const Options& options,
                                                          const TuningService::Parts& tuning,
                                                          const DevicesService::Parts& devices,
                                                          const Clock& clock, const Log& log);
  ~TcpServer();

  int port() const { return port_; }
  // Looks whether the files have changed. To be called now and then, by one thread.
  void Refresh();
  // The newest files are bad: an older set is served.
  bool files_refused() const { return refused_; }

 private:
  TcpServer(const Options& options, const TuningService::Parts& tuning,
            const DevicesService::Parts& devices, const Clock& clock, const Log& log);
  absl::Status Listen(const Options& options);

  const Clock& clock_;
  const Log& log_;
  TlsFiles files_;
  TuningService tuning_;
  DevicesService devices_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::atomic<bool> refused_ = false;
};

}  // namespace hbmtune::daemon

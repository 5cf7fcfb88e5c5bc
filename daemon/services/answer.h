#pragma once

#include <absl/status/status.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>

#include "daemon/base/worker_pool.h"
#include "daemon/services/access.h"

namespace hbmtune::daemon {

// Runs the handlers of calls that their callers may make (Access), and sends what they return. An
// exception, which only a mistake of ours throws, becomes INTERNAL.
class Answerer {
 public:
  using Handler = std::function<absl::Status(const Caller&)>;

  // `service`: "hbmtune.v1.Tuning".
  Answerer(std::string service, const Access& access, WorkerPool& pool)
      : service_(std::move(service)), access_(access), pool_(pool) {}

  absl::StatusOr<Caller> Check(const grpc::CallbackServerContext* context,
                               const char* method) const;
  // On gRPC's thread: for handlers that take microseconds.
  grpc::ServerUnaryReactor* Now(grpc::CallbackServerContext* context, const char* method,
                                const Handler& handler) const;
  // On a worker's thread: for handlers that compute or write. A call that its client has given up
  // by then is not begun.
  grpc::ServerUnaryReactor* Later(grpc::CallbackServerContext* context, const char* method,
                                  Handler handler) const;

 private:
  const std::string service_;
  const Access& access_;
  WorkerPool& pool_;
};

}  // namespace hbmtune::daemon

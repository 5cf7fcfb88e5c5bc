#pragma once

#include <absl/strings/str_cat.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <exception>
#include <functional>
#include <utility>

#include "daemon/base/worker_pool.h"
#include "daemon/services/status.h"

namespace hbmtune::daemon {

// Runs a handler; an exception, which only a mistake of ours throws, becomes INTERNAL.
inline absl::Status Guarded(const std::function<absl::Status()>& handler) {
  try {
    return handler();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("a fault of the daemon: ", error.what()));
  }
}

// Answers on gRPC's thread: for handlers that take microseconds.
inline grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                        const std::function<absl::Status()>& handler) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(Guarded(handler)));
  return reactor;
}

// Answers on a worker's thread: for handlers that compute or write. A call that its client has
// given up by then is not begun.
inline grpc::ServerUnaryReactor* AnswerLater(WorkerPool& pool,
                                             grpc::CallbackServerContext* context,
                                             std::function<absl::Status()> handler) {
  auto* reactor = context->DefaultReactor();
  pool.Post([context, reactor, handler = std::move(handler)] {
    reactor->Finish(context->IsCancelled()
                        ? grpc::Status(grpc::StatusCode::CANCELLED, "the client gave up")
                        : ToGrpc(Guarded(handler)));
  });
  return reactor;
}

}  // namespace hbmtune::daemon

#include "daemon/services/answer.h"

#include <absl/strings/str_cat.h>

#include <exception>
#include <utility>

#include "daemon/services/status.h"

namespace hbmtune::daemon {
namespace {

absl::Status Guarded(const Answerer::Handler& handler, const Caller& caller) {
  try {
    return handler(caller);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("a fault of the daemon: ", error.what()));
  }
}

}  // namespace

absl::StatusOr<Caller> Answerer::Check(const grpc::CallbackServerContext* context,
                                       const char* method) const {
  return access_.Check(*context, absl::StrCat(service_, ".", method));
}

grpc::ServerUnaryReactor* Answerer::Now(grpc::CallbackServerContext* context, const char* method,
                                        const Handler& handler) const {
  auto* reactor = context->DefaultReactor();
  auto caller = Check(context, method);
  reactor->Finish(ToGrpc(caller.ok() ? Guarded(handler, *caller) : caller.status()));
  return reactor;
}

grpc::ServerUnaryReactor* Answerer::Later(grpc::CallbackServerContext* context,
                                          const char* method, Handler handler) const {
  auto* reactor = context->DefaultReactor();
  auto caller = Check(context, method);
  if (!caller.ok()) {
    reactor->Finish(ToGrpc(caller.status()));
    return reactor;
  }
  pool_.Post([context, reactor, caller = *caller, handler = std::move(handler)] {
    if (context->IsCancelled()) {
      return reactor->Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client gave up"));
    }
    reactor->Finish(ToGrpc(Guarded(handler, caller)));
  });
  return reactor;
}

}  // namespace hbmtune::daemon

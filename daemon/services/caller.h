#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/server_context.h>

#include "daemon/net/peers.h"

namespace hbmtune::daemon {

// Who calls. UNAUTHENTICATED if the connection is already gone.
inline absl::StatusOr<PeerIdentity> CallerOf(const grpc::CallbackServerContext& context,
                                             const Peers& peers) {
  if (auto identity = peers.Find(context.peer())) return *identity;
  return absl::UnauthenticatedError("the connection does not say who calls");
}

}  // namespace hbmtune::daemon

#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

namespace hbmtune::daemon {

// The same code and sentence, with google.rpc.BadRequest for wrong fields, google.rpc.ErrorInfo
// (domain "hbmtune") for a reason and google.rpc.RetryInfo for a time to wait. RESOURCE_EXHAUSTED
// without a reason of its own is the store's: STORE_DEGRADED.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace hbmtune::daemon

#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

#include <string>

namespace hbmtune::daemon {

// The same code and sentence, with google.rpc.BadRequest for wrong fields, google.rpc.ErrorInfo
// (domain "hbmtune") for a reason and google.rpc.RetryInfo for a time to wait. RESOURCE_EXHAUSTED
// without a reason of its own is the store's: STORE_DEGRADED. Sentences quote what callers sent:
// its control characters are spelt out, so that no terminal and no log obeys them.
grpc::Status ToGrpc(const absl::Status& status);

// Control characters as \x1b: those of ASCII, and U+0080 to U+009F, which terminals know too.
std::string Spelt(const std::string& text);

}  // namespace hbmtune::daemon

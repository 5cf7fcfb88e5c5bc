#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "client/remote.h"

namespace hbmtune::client {

// What the three files hold.
struct TlsSet {
  std::string roots;
  std::string certificate;
  std::string key;
};

// Reads and checks them: each is a whole PEM file, the certificate is valid today and belongs to
// the key. INVALID_ARGUMENT with a sentence that names the flag and its file: gRPC itself would
// only say that it cannot connect.
absl::StatusOr<TlsSet> ReadTlsSet(const TlsPaths& paths);

}  // namespace hbmtune::client

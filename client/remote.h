#pragma once

#include <CLI/App.hpp>
#include <absl/status/statusor.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>

// A daemon on another machine, over TCP: both sides show certificates.
namespace hbmtune::client {

// PEM files: the roots that the daemon's certificate must lead to, and what we show of ourselves.
struct TlsPaths {
  std::string roots;
  std::string certificate;
  std::string key;
};

struct RemoteFlags {
  std::string address;  // "gpu7:9465", "[::1]:9465"; empty: none was given
  TlsPaths tls;

  void AddTo(CLI::App& app);
  // What was not given, from $HBMTUNE_TLS_CA, $HBMTUNE_TLS_CERT and $HBMTUNE_TLS_KEY.
  TlsPaths TlsOrEnvironment() const;
};

// Where to and as whom, as gRPC takes it.
struct Remote {
  std::string target;  // "dns:///gpu7:9465"
  std::shared_ptr<grpc::ChannelCredentials> credentials;
};

// INVALID_ARGUMENT, one sentence: the address is none, a file of the three is missing or bad (it is
// named), or there is none of them and the address is not of this machine: nothing goes over a
// network in the clear.
absl::StatusOr<Remote> OpenRemote(const std::string& address, const TlsPaths& tls);

// UNAVAILABLE in place of gRPC's own words (of UNAVAILABLE or DEADLINE_EXCEEDED) for a connection
// that failed: a sentence that names the file to look at.
absl::Status ExplainRemote(const std::string& address, const TlsPaths& tls,
                           const absl::Status& status);

}  // namespace hbmtune::client

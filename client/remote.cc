#include "client/remote.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "client/tls_files.h"

namespace hbmtune::client {
namespace {

struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  std::string port;
};

std::optional<HostPort> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort parts{address.substr(0, colon), address.substr(colon + 1)};
  int port = 0;
  const char* end = parts.port.data() + parts.port.size();
  const auto read = std::from_chars(parts.port.data(), end, port);
  if (read.ec != std::errc() || read.ptr != end || port < 1 || port > 65535) return std::nullopt;
  const bool brackets = parts.host.front() == '[' && parts.host.back() == ']';
  if (brackets) parts.host = parts.host.substr(1, parts.host.size() - 2);
  const bool six = parts.host.find(':') != std::string::npos;
  if (parts.host.empty() || six != brackets || parts.host.find('/') != std::string::npos) {
    return std::nullopt;
  }
  return parts;
}

// An address of this machine alone, whatever the resolver says of names.
bool IsLoopback(const std::string& host) {
  int dots = 0;
  for (char c : host) dots += c == '.';
  const bool four = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "::1" || host == "localhost" || (four && dots == 3 && host.starts_with("127."));
}

std::string Given(const std::string& flag, const char* variable) {
  if (!flag.empty()) return flag;
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

void RemoteFlags::AddTo(CLI::App& app) {
  const std::string group = "which daemon";
  app.add_option("--address", address,
                 "a daemon on another machine, over TCP with the certificates of both sides "
                 "[$HBMTUNE_ADDRESS]")
      ->type_name("HOST:PORT")
      ->group(group);
  app.add_option("--tls-ca", tls.roots,
                 "PEM file of the roots that its certificate leads to [$HBMTUNE_TLS_CA]")
      ->type_name("PATH")
      ->group(group);
  app.add_option("--tls-cert", tls.certificate,
                 "PEM file of your own certificate [$HBMTUNE_TLS_CERT]")
      ->type_name("PATH")
      ->group(group);
  app.add_option("--tls-key", tls.key, "PEM file of its key, without a password [$HBMTUNE_TLS_KEY]")
      ->type_name("PATH")
      ->group(group);
}

TlsPaths RemoteFlags::TlsOrEnvironment() const {
  return {Given(tls.roots, "HBMTUNE_TLS_CA"), Given(tls.certificate, "HBMTUNE_TLS_CERT"),
          Given(tls.key, "HBMTUNE_TLS_KEY")};
}

absl::StatusOr<Remote> OpenRemote(const std::string& address, const TlsPaths& tls) {
  auto parts = Split(address);
  if (!parts) {
    return absl::InvalidArgumentError("--address: '" + address +
                                      "' is not HOST:PORT (like gpu7:9465 or [::1]:9465)");
  }
  if (tls.roots.empty() && tls.certificate.empty() && tls.key.empty()) {
    if (!IsLoopback(parts->host)) {
      return absl::InvalidArgumentError(
          "--address " + address + " is another machine, and nothing goes there in the clear: "
          "give --tls-ca, --tls-cert and --tls-key");
    }
    if (parts->host == "localhost") parts->host = "127.0.0.1";  // not what a resolver may say
    const bool six = parts->host.find(':') != std::string::npos;
    return Remote{six ? "ipv6:[" + parts->host + "]:" + parts->port
                      : "ipv4:" + parts->host + ":" + parts->port,
                  grpc::InsecureChannelCredentials()};
  }
  auto set = ReadTlsSet(tls);
  if (!set.ok()) return set.status();
  return Remote{"dns:///" + address,
                grpc::SslCredentials({set->roots, set->key, set->certificate})};
}

absl::Status ExplainRemote(const std::string& address, const TlsPaths& tls,
                           const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) {
    return absl::UnavailableError("no daemon at " + address + ": no answer within 10 s");
  }
  const std::string said(status.message());
  auto has = [&](std::string_view words) { return said.find(words) != std::string::npos; };
  std::string why = said.substr(0, said.find('\n'));
  const bool hung_up = has("Socket closed") || has("reset by peer") || has("Broken pipe");
  if (has("Connection refused")) {
    why = "nobody listens there";
  } else if (has("DNS resolution failed")) {
    why = "there is no such host";
  } else if (tls.roots.empty() && hung_up) {
    why = "it hung up: give --tls-ca, --tls-cert and --tls-key";
  } else if (has("certificate verify failed") || has("CERTIFICATE_VERIFY_FAILED")) {
    why = "its certificate does not lead to " + tls.roots + ", or is not valid today";
  } else if (has("not in peer certificate") || has("Hostname Verification")) {
    why = "its certificate is of another name";
  } else if (has("WRONG_VERSION_NUMBER") || has("wrong version number")) {
    why = "it speaks no TLS there";
  } else if (hung_up) {
    why = "it hung up, as it does on a certificate that it does not trust: " + tls.certificate;
  }
  return absl::UnavailableError("no daemon at " + address + ": " + why);
}

}  // namespace hbmtune::client

#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

class CivetServer;

namespace hbmtune::daemon {

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// GET and HEAD only, on one address, meant for loopback: requests whose Host is not a loopback name
// are refused, so that no web page can read it by rebinding a name.
class HttpServer {
 public:
  using Handler = std::function<HttpAnswer()>;  // any thread

  // `address` is "127.0.0.1:PORT"; port 0 takes a free one. Paths are matched whole.
  // INVALID_ARGUMENT for an address that is none or is not loopback, UNAVAILABLE if it is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, std::map<std::string, Handler> handlers);
  ~HttpServer();

  int port() const { return port_; }

 private:
  class Endpoint;
  HttpServer() = default;

  std::map<std::string, std::unique_ptr<Endpoint>> endpoints_;
  std::unique_ptr<CivetServer> server_;  // destroyed first: its threads use the endpoints
  int port_ = 0;
};

// Whether the text is a loopback address with a port: "127.0.0.1:9464", "[::1]:0", "localhost:80".
// INVALID_ARGUMENT says what is wrong with it.
struct HttpAddress {
  std::string host;
  int port = 0;
};
absl::StatusOr<HttpAddress> ParseHttpAddress(const std::string& address);

// True for localhost, 127.0.0.1 and [::1], with or without a port.
bool IsLoopbackHost(const std::string& host);

}  // namespace hbmtune::daemon

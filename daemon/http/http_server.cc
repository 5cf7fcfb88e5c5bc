#include "daemon/http/http_server.h"

#include <CivetServer.h>
#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace hbmtune::daemon {
namespace {

constexpr std::string_view kSecurityHeaders =
    "X-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'self'; img-src 'self' data:; "
    "style-src 'unsafe-inline' 'self'; script-src 'unsafe-inline' 'self'\r\n"
    "Cache-Control: no-store\r\n";

std::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

void Send(mg_connection* connection, const HttpAnswer& answer, bool with_body = true) {
  std::string head = absl::StrCat("HTTP/1.1 ", answer.status, " ",
                                  std::string(Reason(answer.status)), "\r\nContent-Type: ",
                                  answer.content_type, "\r\nContent-Length: ", answer.body.size(),
                                  "\r\nConnection: close\r\n", std::string(kSecurityHeaders),
                                  "\r\n");
  mg_write(connection, head.data(), head.size());
  if (with_body) mg_write(connection, answer.body.data(), answer.body.size());
}

bool IsLoopbackName(const std::string& host) {
  in_addr address{};
  if (host == "localhost" || host == "[::1]") return true;
  return host.starts_with("127.") && inet_pton(AF_INET, host.c_str(), &address) == 1;
}

}  // namespace

absl::StatusOr<HttpAddress> ParseHttpAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  HttpAddress parsed;
  if (colon != std::string::npos) parsed.host = address.substr(0, colon);
  if (!IsLoopbackName(parsed.host)) {
    return absl::InvalidArgumentError("is no loopback address with a port, as 127.0.0.1:9464");
  }
  const std::string port = address.substr(colon + 1);
  constexpr int kMostPort = 65535;
  const bool digits = !port.empty() && port.size() <= 9 &&
                      std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(port, &parsed.port) || parsed.port > kMostPort) {
    return absl::InvalidArgumentError(
        absl::StrCat("the port '", port, "' is not one of 0 to ", kMostPort));
  }
  return parsed;
}

bool IsLoopbackHost(const std::string& host) {
  for (const char* name : {"localhost", "127.0.0.1", "[::1]"}) {
    const std::string_view known(name);
    if (host == known || host.starts_with(std::string(known) + ":")) return true;
  }
  return false;
}

class HttpServer::Endpoint final : public CivetHandler {
 public:
  Endpoint(std::string path, Handler handler)
      : path_(std::move(path)), handler_(std::move(handler)) {}

  bool handleGet(CivetServer*, mg_connection* c) override { return Answer(c, true); }
  bool handleHead(CivetServer*, mg_connection* c) override { return Answer(c, false); }
  bool handlePost(CivetServer*, mg_connection* c) override { return Refuse(c); }
  bool handlePut(CivetServer*, mg_connection* c) override { return Refuse(c); }
  bool handleDelete(CivetServer*, mg_connection* c) override { return Refuse(c); }
  bool handleOptions(CivetServer*, mg_connection* c) override { return Refuse(c); }
  bool handlePatch(CivetServer*, mg_connection* c) override { return Refuse(c); }

 private:
  bool Answer(mg_connection* connection, bool with_body) {
    const char* host = mg_get_header(connection, "Host");
    const mg_request_info* request = mg_get_request_info(connection);
    if (host == nullptr || !IsLoopbackHost(host)) {
      Send(connection, {403, "text/plain", "only by a loopback name\n"}, with_body);
    } else if (path_ != request->local_uri) {  // CivetWeb matches by prefix
      Send(connection, {404, "text/plain", "no such page\n"}, with_body);
    } else {
      Send(connection, handler_(), with_body);
    }
    return true;
  }
  static bool Refuse(mg_connection* connection) {
    Send(connection, {405, "text/plain", "GET and HEAD only\n"});
    return true;
  }

  const std::string path_;
  const Handler handler_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, std::map<std::string, Handler> handlers) {
  if (auto parsed = ParseHttpAddress(address); !parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("http: '", address, "': ", std::string(parsed.status().message())));
  }
  std::unique_ptr<HttpServer> server(new HttpServer);
  // A connection that says nothing holds a thread for a second: 200 of them delay a scrape by 7 s
  // at most. Whoever can connect is on this machine.
  const std::vector<std::string> options = {"listening_ports",    address, "num_threads", "32",
                                            "request_timeout_ms", "1000",  "enable_keep_alive",
                                            "no"};
  try {
    server->server_ = std::make_unique<CivetServer>(options);
  } catch (const CivetException&) {
    return absl::UnavailableError(absl::StrCat("http: cannot listen on ", address,
                                               ": it is taken; choose another --http, or off"));
  }
  if (!handlers.contains("/")) handlers["/"] = [] { return HttpAnswer{404, "text/plain", ""}; };
  for (auto& [path, handler] : handlers) {
    auto endpoint = std::make_unique<Endpoint>(path, std::move(handler));
    server->server_->addHandler(path, *endpoint);
    server->endpoints_[path] = std::move(endpoint);
  }
  const std::vector<int> ports = server->server_->getListeningPorts();
  server->port_ = ports.empty() ? 0 : ports.front();
  return server;
}

// CivetWeb's listener looks at its stop flag every 2 s or when somebody connects: we connect.
HttpServer::~HttpServer() {
  std::atomic<bool> stopped = false;
  std::thread caller([&] {
    while (!stopped) {
      if (mg_connection* c = mg_connect_client("127.0.0.1", port_, 0, nullptr, 0)) {
        mg_close_connection(c);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  server_.reset();
  stopped = true;
  caller.join();
}

}  // namespace hbmtune::daemon

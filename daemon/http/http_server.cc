#include "daemon/http/http_server.h"

#include <CivetServer.h>
#include <absl/strings/str_cat.h>

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
    "Content-Security-Policy: default-src 'self'; style-src 'unsafe-inline' 'self'; "
    "script-src 'unsafe-inline' 'self'\r\n"
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

void Send(mg_connection* connection, const HttpAnswer& answer) {
  std::string head = absl::StrCat("HTTP/1.1 ", answer.status, " ",
                                  std::string(Reason(answer.status)), "\r\nContent-Type: ",
                                  answer.content_type, "\r\nContent-Length: ", answer.body.size(),
                                  "\r\nConnection: close\r\n", std::string(kSecurityHeaders),
                                  "\r\n");
  mg_write(connection, head.data(), head.size());
  mg_write(connection, answer.body.data(), answer.body.size());
}

bool IsLoopbackAddress(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("[::1]:") ||
         address.starts_with("localhost:");
}

}  // namespace

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

  bool handleGet(CivetServer*, mg_connection* connection) override {
    const char* host = mg_get_header(connection, "Host");
    const mg_request_info* request = mg_get_request_info(connection);
    if (host == nullptr || !IsLoopbackHost(host)) {
      Send(connection, {403, "text/plain", "only by a loopback name\n"});
    } else if (path_ != request->local_uri) {  // CivetWeb matches by prefix
      Send(connection, {404, "text/plain", "no such page\n"});
    } else {
      Send(connection, handler_());
    }
    return true;
  }
  bool handlePost(CivetServer*, mg_connection* c) override { return Refuse(c); }
  bool handleHead(CivetServer*, mg_connection* c) override { return Refuse(c); }
  bool handlePut(CivetServer*, mg_connection* c) override { return Refuse(c); }
  bool handleDelete(CivetServer*, mg_connection* c) override { return Refuse(c); }
  bool handleOptions(CivetServer*, mg_connection* c) override { return Refuse(c); }
  bool handlePatch(CivetServer*, mg_connection* c) override { return Refuse(c); }

 private:
  static bool Refuse(mg_connection* connection) {
    Send(connection, {405, "text/plain", "GET only\n"});
    return true;
  }

  const std::string path_;
  const Handler handler_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, std::map<std::string, Handler> handlers) {
  if (!IsLoopbackAddress(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("http: '", address, "' is no loopback address with a port: 127.0.0.1:9464"));
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

#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace hbmtune::testing {

struct HttpReply {
  int status = 0;  // 0: no answer
  std::string body;
};

// One request to "127.0.0.1:PORT"; `head` is everything after the request line, save the last
// empty line.
inline HttpReply HttpRequest(const std::string& address, const std::string& request_line,
                             const std::string& head) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int port = std::atoi(address.c_str() + address.find(':') + 1);
  to.sin_port = htons(static_cast<uint16_t>(port));
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string text;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
    const std::string request = request_line + "\r\n" + head + "\r\n\r\n";
    if (write(fd, request.data(), request.size()) > 0) {
      char buffer[4096];
      for (ssize_t size; (size = read(fd, buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<size_t>(size));
      }
    }
  }
  close(fd);
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return {};
  return {std::atoi(text.substr(text.find(' ') + 1, 3).c_str()), text.substr(end + 4)};
}

inline HttpReply HttpGet(const std::string& address, const std::string& path) {
  return HttpRequest(address, "GET " + path + " HTTP/1.1", "Host: " + address);
}

}  // namespace hbmtune::testing

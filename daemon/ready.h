#pragma once

#include <absl/status/status.h>

#include <string>

#include "daemon/base/unique_fd.h"

namespace hbmtune::daemon {

// Tells whoever started the daemon what became of it, on the descriptor that it gave (--ready-fd),
// once: lines, then the end of the file.
//   ready PATH             clients can connect to this socket
//   http 127.0.0.1:PORT    after it, when HTTP is on
//   error SENTENCE         the daemon is leaving
class ReadyNote {
 public:
  explicit ReadyNote(int fd) : fd_(fd) {}
  void Ready(const std::string& socket_path, int http_port);
  void Failed(const absl::Status& why);

 private:
  void Send(const std::string& text);
  UniqueFd fd_;
};

}  // namespace hbmtune::daemon

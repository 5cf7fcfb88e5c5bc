#pragma once

#include <absl/status/status.h>

#include <string>
#include <string_view>
#include <utility>

namespace hbmtune::daemon {

// Tells whoever runs the daemon as a service how far it is: a datagram of one line to the socket
// that he named in $NOTIFY_SOCKET, as systemd does for Type=notify (sd_notify(3)).
class ServiceManager {
 public:
  // Of this process's environment, which no child inherits then: nobody is told what a probe says.
  static ServiceManager FromEnvironment();
  // A path, or "@" and an abstract name; empty: nobody is told anything.
  explicit ServiceManager(std::string socket) : socket_(std::move(socket)) {}

  absl::Status Ready() const { return Tell("READY=1\n"); }
  absl::Status Stopping() const { return Tell("STOPPING=1\n"); }

 private:
  // The status names the socket and why it cannot be told; five seconds at most.
  absl::Status Tell(std::string_view line) const;

  std::string socket_;
};

}  // namespace hbmtune::daemon

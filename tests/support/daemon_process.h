#pragma once

#include <grpcpp/channel.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hbmtune::testing {

// bin/hbmtuned as a process of its own. Killed with the object if it still runs.
class DaemonProcess {
 public:
  // Starts it with these flags (and --ready-fd) and reads its ready note to the end.
  explicit DaemonProcess(std::vector<std::string> flags);
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Lines of the note: "ready PATH", "http 127.0.0.1:PORT" or "error SENTENCE".
  const std::string& note() const { return note_; }
  std::string http_address() const;  // "" if the note has none
  void Signal(int signal);
  // The wait status, if it ends within so many seconds.
  std::optional<int> WaitFor(double seconds);
  // What it wrote on stderr so far.
  std::string Errors() const;

 private:
  pid_t pid_ = -1;
  std::string note_;
  std::string error_path_;
};

// A channel to a Unix socket whose path may be too long for an address.
std::shared_ptr<grpc::Channel> ConnectTo(const std::string& socket_path);

}  // namespace hbmtune::testing

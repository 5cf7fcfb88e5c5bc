#pragma once

#include <absl/time/time.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "daemon/base/unique_fd.h"
#include "daemon/net/peers.h"
#include "daemon/net/unix_socket.h"

namespace hbmtune::daemon {

// Accepts connections of our own listener, learns who is there, and hands each to gRPC. One
// thread; it also notices when a connection ends, through a duplicate of its descriptor.
//
// A connection's number is its name in Peers, so a number is not used again soon: descriptors are
// moved to numbers that go round through a range of their own.
class Acceptor {
 public:
  struct Limits {
    size_t connections = 1024;
    size_t connections_of_uid = 256;
  };
  using Serve = std::function<void(int fd)>;  // takes the descriptor over

  // Raises the process's limit of open files (RLIMIT_NOFILE) as far as that goes.
  Acceptor(UnixSocket socket, Peers& peers, const Limits& limits, Serve serve);
  ~Acceptor();  // stops accepting; connections stay

  // The limit of open files that holds, and the connections that it leaves room for, two files
  // each: more at once are closed whatever the limits.
  int file_limit() const { return file_limit_; }
  size_t room() const { return room_; }

  // For connections that come from now on.
  void SetLimits(const Limits& limits);
  // How long nobody has been connected; zero while somebody is.
  absl::Duration IdleFor() const;
  // Stops accepting, unless somebody is connected or about to be: then false, and it goes on.
  bool CloseIfUnused();
  const std::string& path() const { return socket_.path(); }

 private:
  void Run();
  void AcceptAll();
  void AcceptOne(UniqueFd connection);
  int NextNumber();

  UnixSocket socket_;
  Peers& peers_;
  const Serve serve_;
  UniqueFd wake_;   // eventfd: stop
  UniqueFd epoll_;
  const int file_limit_;
  const size_t room_;
  int next_number_;
  int last_number_;

  mutable std::mutex mutex_;
  Limits limits_;                    // guarded by mutex_
  std::map<int, UniqueFd> watched_;  // connection's number -> duplicate; guarded by mutex_
  absl::Time idle_since_;            // guarded by mutex_
  bool stopping_ = false;            // guarded by mutex_
  std::thread thread_;
};

}  // namespace hbmtune::daemon

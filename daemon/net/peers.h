#pragma once

#include <absl/time/time.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

namespace hbmtune::daemon {

// Who is at the other end of a connection, as the kernel says (SO_PEERCRED): at the time of its
// connect(), so a descriptor handed to another user keeps its first owner's identity.
struct PeerIdentity {
  int64_t uid = -1;
  int64_t gid = -1;
  int64_t pid = 0;
};

// Live connections by the number that gRPC was given: it calls them "fd:N". Any thread.
class Peers {
 public:
  void Add(int fd, const PeerIdentity& identity);
  void Remove(int fd);
  // Of ServerContext::peer(); nothing for a connection that is gone.
  std::optional<PeerIdentity> Find(std::string_view grpc_peer) const;
  size_t count() const;
  size_t CountOf(int64_t uid) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, PeerIdentity> by_fd_;  // guarded by mutex_
};

}  // namespace hbmtune::daemon

#include "daemon/net/peers.h"

#include <absl/strings/numbers.h>

#include <algorithm>
#include <string>

namespace hbmtune::daemon {

void Peers::Add(int fd, const PeerIdentity& identity) {
  std::lock_guard lock(mutex_);
  by_fd_[fd] = identity;
}

void Peers::Remove(int fd) {
  std::lock_guard lock(mutex_);
  by_fd_.erase(fd);
}

std::optional<PeerIdentity> Peers::Find(std::string_view grpc_peer) const {
  constexpr std::string_view kPrefix = "fd:";
  if (!grpc_peer.starts_with(kPrefix)) return std::nullopt;
  int fd = -1;
  if (!absl::SimpleAtoi(std::string(grpc_peer.substr(kPrefix.size())), &fd)) return std::nullopt;
  std::lock_guard lock(mutex_);
  auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return std::nullopt;
  return found->second;
}

size_t Peers::count() const {
  std::lock_guard lock(mutex_);
  return by_fd_.size();
}

size_t Peers::CountOf(int64_t uid) const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(by_fd_.begin(), by_fd_.end(), [uid](const auto& entry) {
    return entry.second.uid == uid;
  }));
}

}  // namespace hbmtune::daemon

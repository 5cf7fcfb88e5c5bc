#include "daemon/service_manager.h"

#include <absl/strings/str_cat.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "daemon/base/unique_fd.h"

namespace hbmtune::daemon {
namespace {

constexpr timeval kPatience = {5, 0};  // with one that does not read: its queue may be full

}  // namespace

ServiceManager ServiceManager::FromEnvironment() {
  constexpr char kVariable[] = "NOTIFY_SOCKET";
  const char* socket = std::getenv(kVariable);
  ServiceManager manager(socket == nullptr ? "" : socket);
  unsetenv(kVariable);
  return manager;
}

absl::Status ServiceManager::Tell(std::string_view line) const {
  if (socket_.empty()) return absl::OkStatus();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if ((socket_[0] != '/' && socket_[0] != '@') || socket_.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat(
        "NOTIFY_SOCKET '", socket_, "' is no path or @name of at most 107 bytes"));
  }
  socket_.copy(address.sun_path, socket_.size());
  if (socket_[0] == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "cannot make a socket");
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  if (sendto(fd.get(), line.data(), line.size(), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&address), size) < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write to NOTIFY_SOCKET ", socket_));
  }
  return absl::OkStatus();
}

}  // namespace hbmtune::daemon

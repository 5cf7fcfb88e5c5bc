#include "client/socket_path.h"

#include <absl/status/statusor.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace hbmtune::client {
namespace {

std::string Explain(int error) {
  switch (error) {
    case ENOENT: return "there is no such socket";
    case ECONNREFUSED: return "nobody listens there";
    case EACCES: return "this user may not open it";
    default: return std::strerror(error);
  }
}

absl::StatusOr<FileDescriptor> ConnectedTo(const std::string& path) {
  FileDescriptor folder;
  std::string shorter = ShortSocketPath(path, folder);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (shorter.size() > kMostSocketPathBytes) {
    return absl::UnavailableError("no daemon at " + path + ": there is no such folder");
  }
  std::memcpy(address.sun_path, shorter.data(), shorter.size());
  FileDescriptor peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  if (peer.valid() && connect(peer.get(), raw, sizeof address) == 0) return peer;
  return absl::UnavailableError("no daemon at " + path + ": " + Explain(errno));
}

}  // namespace

std::string ShortSocketPath(const std::string& path, FileDescriptor& folder) {
  if (path.size() <= kMostSocketPathBytes) return path;
  std::filesystem::path whole = path;
  std::string parent = whole.has_parent_path() ? whole.parent_path().string() : ".";
  folder = FileDescriptor(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return path;
  return "/proc/self/fd/" + std::to_string(folder.get()) + "/" + whole.filename().string();
}

absl::Status Probe(const std::string& path) { return ConnectedTo(path).status(); }

int64_t ListenerOf(const std::string& path) {
  auto connected = ConnectedTo(path);
  ucred peer{};
  socklen_t size = sizeof peer;
  if (!connected.ok()) return 0;
  getsockopt(connected->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer.pid;
}

}  // namespace hbmtune::client

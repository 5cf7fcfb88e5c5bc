#include "daemon/net/unix_socket.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace hbmtune::daemon {
namespace {

// The address of `path`, and the directory that must stay open while it is used.
struct Address {
  sockaddr_un address{};
  UniqueFd directory;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

absl::StatusOr<Address> AddressOf(const std::string& path) {
  Address result;
  result.address.sun_family = AF_UNIX;
  std::string name = path;
  if (name.size() >= sizeof(result.address.sun_path)) {
    const std::filesystem::path full(path);
    const std::string parent = full.has_parent_path() ? full.parent_path().string() : ".";
    result.directory.Reset(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!result.directory.valid()) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", parent));
    }
    name = absl::StrCat("/proc/self/fd/", result.directory.get(), "/", full.filename().string());
    if (name.size() >= sizeof(result.address.sun_path)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the socket's file name is too long (at most 80 bytes): ", full.filename().string()));
    }
  }
  std::memcpy(result.address.sun_path, name.c_str(), name.size() + 1);
  return result;
}

absl::StatusOr<UniqueFd> BindAndListen(const std::string& path, int mode) {
  auto address = AddressOf(path);
  if (!address.ok()) return address.status();
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "cannot make a socket");
  struct stat there{};
  if (lstat(path.c_str(), &there) == 0 && !S_ISSOCK(there.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is there already and is no socket: choose another --socket"));
  }
  unlink(path.c_str());  // what a dead daemon left: the lock says that none is alive
  // fchmod before bind sets the mode of the file that bind makes: nobody gets in between.
  fchmod(fd.get(), static_cast<mode_t>(mode));
  if (bind(fd.get(), address->get(), sizeof(sockaddr_un)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen on ", path));
  }
  chmod(path.c_str(), static_cast<mode_t>(mode));
  if (listen(fd.get(), SOMAXCONN) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen on ", path));
  }
  return fd;
}

}  // namespace

absl::StatusOr<UnixSocket> UnixSocket::Listen(const std::string& path, int mode) {
  auto lock = LockFile::Acquire(path + ".lock");
  if (!lock.ok()) {
    if (!absl::IsFailedPrecondition(lock.status())) return lock.status();
    return absl::FailedPreconditionError(
        absl::StrCat("another hbmtuned (process ", ReadLockPid(path + ".lock"),
                     ") listens on ", path, ": stop it, or choose another --socket"));
  }
  UnixSocket result(path, mode, *std::move(lock));
  if (absl::Status status = result.Relisten(); !status.ok()) return status;
  return result;
}

absl::Status UnixSocket::Relisten() {
  auto fd = BindAndListen(path_, mode_);
  if (!fd.ok()) return fd.status();
  fd_ = *std::move(fd);
  return absl::OkStatus();
}

void UnixSocket::Unlink() { unlink(path_.c_str()); }

UnixSocket::~UnixSocket() {
  if (fd_.valid()) Unlink();
}

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path) {
  auto address = AddressOf(path);
  if (!address.ok()) return address.status();
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "cannot make a socket");
  if (connect(fd.get(), address->get(), sizeof(sockaddr_un)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot connect to ", path));
  }
  return fd;
}

}  // namespace hbmtune::daemon

#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "daemon/base/lock_file.h"
#include "daemon/base/unique_fd.h"

namespace hbmtune::daemon {

// A listening Unix socket, non-blocking, mode 0600 or what `mode` says. While it is open,
// PATH.lock is locked, so two daemons never share a path, and a socket that a dead one left is
// replaced. A path over 107 bytes does not fit into a socket address: it is bound through its
// directory's /proc/self/fd entry, and clients reach it the same way.
class UnixSocket {
 public:
  // FAILED_PRECONDITION, one sentence, if another process holds the lock.
  static absl::StatusOr<UnixSocket> Listen(const std::string& path, int mode);
  ~UnixSocket();
  UnixSocket(UnixSocket&&) = default;

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

  // Takes the path away: nobody connects any more, the lock is still held. Connections that wait
  // to be accepted still can be.
  void Unlink();
  // Makes the path again after Unlink(): a new socket; the old one is closed.
  absl::Status Relisten();

 private:
  UnixSocket(std::string path, int mode, LockFile lock)
      : path_(std::move(path)), mode_(mode), lock_(std::move(lock)) {}

  std::string path_;
  int mode_;
  LockFile lock_;
  UniqueFd fd_;
};

// A connected socket, for tests and for asking whether somebody listens.
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path);

}  // namespace hbmtune::daemon

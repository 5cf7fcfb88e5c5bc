#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <sys/types.h>

#include <string>
#include <string_view>

#include "daemon/base/unique_fd.h"

namespace hbmtune::daemon {

// An exclusive flock on a file that is created for it and holds the owner's pid for people. The
// lock belongs to the open file: a child that inherits the descriptor holds it too, until its
// death; the file stays, its lock does not. Moved, never copied.
class LockFile {
 public:
  // Tries until `patience` is over. FAILED_PRECONDITION ("held by process N") if another holds it;
  // PERMISSION_DENIED, NOT_FOUND, … if the file cannot be made.
  // `mode`: of a file that is made; one that is there stays as it is, and may be another user's.
  static absl::StatusOr<LockFile> Acquire(const std::string& path,
                                          absl::Duration patience = absl::ZeroDuration(),
                                          mode_t mode = 0600);

  int fd() const { return fd_.get(); }
  // Writes another pid into the file, for the holder that inherits the lock, and a word about it.
  void WritePid(int64_t pid, std::string_view word = "");

 private:
  explicit LockFile(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// The pid that a lock file names; 0 for none.
int64_t ReadLockPid(const std::string& path);

}  // namespace hbmtune::daemon

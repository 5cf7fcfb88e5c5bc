#include "daemon/base/lock_file.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>

namespace hbmtune::daemon {
namespace {

// Two steps: where everybody may write, the kernel refuses O_CREAT on a file of another user
// (fs.protected_regular).
int OpenOrMake(const std::string& path, mode_t mode) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  for (;;) {
    int fd = open(path.c_str(), kFlags);
    if (fd >= 0 || errno != ENOENT) return fd;
    fd = open(path.c_str(), kFlags | O_CREAT | O_EXCL, mode);
    if (fd >= 0) fchmod(fd, mode);  // whatever the umask
    if (fd >= 0 || errno != EEXIST) return fd;
  }
}

}  // namespace

absl::StatusOr<LockFile> LockFile::Acquire(const std::string& path, absl::Duration patience,
                                           mode_t mode) {
  UniqueFd fd(OpenOrMake(path, mode));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const absl::Time deadline = absl::Now() + patience;
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock ", path));
    }
    if (absl::Now() >= deadline) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is held by process ", ReadLockPid(path)));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  LockFile lock(std::move(fd));
  lock.WritePid(getpid());
  return lock;
}

void LockFile::WritePid(int64_t pid, std::string_view word) {
  const std::string text = absl::StrCat(pid, word.empty() ? "" : " ", std::string(word), "\n");
  // Only people read it: a failure (full disk) takes nothing from the lock.
  if (ftruncate(fd_.get(), 0) == 0 && pwrite(fd_.get(), text.data(), text.size(), 0) < 0) return;
}

int64_t ReadLockPid(const std::string& path) {
  std::ifstream file(path);
  int64_t pid = 0;
  file >> pid;
  return pid;
}

}  // namespace hbmtune::daemon

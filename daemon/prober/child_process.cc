#include "daemon/prober/child_process.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

extern "C" char** environ;

namespace hbmtune::daemon {
namespace {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Signals as a fresh process has them: ours are blocked for the signal thread.
void ResetSignals(posix_spawnattr_t& attributes) {
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                            POSIX_SPAWN_SETPGROUP);
}

void MapDescriptors(posix_spawn_file_actions_t& actions, int in, int out, int err, int inherit) {
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  constexpr int kInherited = 3;
  if (inherit >= 0) posix_spawn_file_actions_adddup2(&actions, inherit, kInherited);
  posix_spawn_file_actions_addclosefrom_np(&actions, inherit >= 0 ? kInherited + 1 : kInherited);
}

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Spawn(const Command& command) {
  auto in = MakePipe();
  auto out = MakePipe();
  auto err = MakePipe();
  if (!in.ok() || !out.ok() || !err.ok()) return absl::UnavailableError("cannot make a pipe");
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_init(&actions);
  absl::Cleanup destroy = [&] {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  };
  ResetSignals(attributes);
  MapDescriptors(actions, in->read.get(), out->write.get(), err->write.get(), command.inherit);

  std::vector<std::string> words = {command.path};
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  pid_t pid = 0;
  int error = posix_spawn(&pid, command.path.c_str(), &actions, &attributes,
                          Pointers(words).data(), environ);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot start ", command.path, ": ", std::strerror(error)));
  }
  ChildProcess child;
  child.pid_ = pid;
  child.input_ = std::move(in->write);
  child.output_ = std::move(out->read);
  child.errors_ = std::move(err->read);
  child.pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  SetNonBlocking(child.output_.get());
  SetNonBlocking(child.errors_.get());
  return child;
}

void ChildProcess::Signal(int signal) { kill(static_cast<pid_t>(-pid_), signal); }

std::optional<int> ChildProcess::Reap() {
  int status = 0;
  pid_t reaped = waitpid(static_cast<pid_t>(pid_), &status, WNOHANG);
  if (reaped == pid_) return status;
  return std::nullopt;
}

std::string DescribeWaitStatus(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("exit status ", WEXITSTATUS(status));
}

}  // namespace hbmtune::daemon

#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/unique_fd.h"

namespace hbmtune::daemon {

// A child with pipes on stdin, stdout and stderr, in a process group of its own, with default
// signal handling and no other descriptor than `inherit`. Made by posix_spawn: a fork would copy
// gRPC's locks. Reaped by its owner.
class ChildProcess {
 public:
  struct Command {
    std::string path;
    std::vector<std::string> arguments;  // without the program's name
    int inherit = -1;                    // given to the child as descriptor 3
  };
  // UNAVAILABLE names the program and why it cannot be started.
  static absl::StatusOr<ChildProcess> Spawn(const Command& command);

  ChildProcess(ChildProcess&& other) noexcept = default;
  ChildProcess& operator=(ChildProcess&& other) noexcept = default;
  // A child that still runs is left to itself, with its stdin closed; see `Reap`.
  ~ChildProcess() = default;

  int64_t pid() const { return pid_; }
  UniqueFd& input() { return input_; }    // written to
  UniqueFd& output() { return output_; }  // read from, non-blocking
  UniqueFd& errors() { return errors_; }  // read from, non-blocking
  int pidfd() const { return pidfd_.get(); }  // readable when it has ended

  // To its whole process group.
  void Signal(int signal);
  // The wait status, when it has ended; nothing while it runs.
  std::optional<int> Reap();

 private:
  ChildProcess() = default;

  int64_t pid_ = 0;
  UniqueFd input_;
  UniqueFd output_;
  UniqueFd errors_;
  UniqueFd pidfd_;
};

// "exit status 3", "signal 9 (Killed)"
std::string DescribeWaitStatus(int status);

}  // namespace hbmtune::daemon

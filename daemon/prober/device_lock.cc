#include "daemon/prober/device_lock.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/time/clock.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace hbmtune::daemon {
namespace {

constexpr absl::Duration kStep = absl::Milliseconds(50);

std::string LineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The parent has our name: it is a daemon, we or another, that follows its probe.
bool HasDaemon(int64_t pid) {
  const std::string stat = LineOf(absl::StrCat("/proc/", pid, "/stat"));
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string state;
  int64_t parent = 0;
  fields >> state >> parent;
  return LineOf(absl::StrCat("/proc/", parent, "/comm")) == LineOf("/proc/self/comm");
}

bool RunsProbe(int64_t pid, const std::string& probe_path) {
  std::error_code error;
  auto running = std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error);
  auto probe = std::filesystem::canonical(probe_path, error);
  return !error && pid > 0 && running == probe;
}

void Take(StopLadder::Action action, int64_t pid) {
  switch (action) {
    case StopLadder::Action::kInterrupt:
      kill(static_cast<pid_t>(pid), SIGINT);
      break;
    case StopLadder::Action::kTerminate:
      kill(static_cast<pid_t>(pid), SIGTERM);
      break;
    case StopLadder::Action::kKill:
      kill(static_cast<pid_t>(pid), SIGKILL);
      break;
    case StopLadder::Action::kGiveUp:
      break;
  }
}

}  // namespace

absl::StatusOr<LockFile> LockDevice(const DeviceLockRequest& request,
                                    const Cancellation& cancellation, const Log& log) {
  const std::string path = absl::StrCat(
      request.directory, "/", absl::StrReplaceAll(request.device, {{"/", "_"}}), ".lock");
  const absl::Time patient_until = absl::Now() + request.patience;
  StopLadder ladder(request.stop);
  for (;;) {
    auto lock = LockFile::Acquire(path, kStep, 0666);
    if (lock.ok() || !absl::IsFailedPrecondition(lock.status())) return lock;
    if (cancellation.cancelled()) return absl::CancelledError("cancelled");
    if (absl::Now() < patient_until) continue;
    const int64_t holder = ReadLockPid(path);
    if (LineOf(path).ends_with(kInUnit)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the device ", request.device, " is held by the probe ", holder,
                       " in its unit, which ends when its daemon leaves or dies"));
    }
    if (!RunsProbe(holder, request.probe_path) || HasDaemon(holder)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the device ", request.device, " is held by process ", holder));
    }
    if (!ladder.started()) {
      log.Warning("a probe of an earlier daemon is stopped",
                  {{"device", request.device}, {"pid", holder}});
      ladder.Start(absl::Now());
    }
    auto action = ladder.Due(absl::Now());
    if (!action) continue;
    if (*action == StopLadder::Action::kGiveUp) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the device ", request.device, " is held by probe ", holder, ", which cannot be killed"));
    }
    Take(*action, holder);
  }
}

}  // namespace hbmtune::daemon

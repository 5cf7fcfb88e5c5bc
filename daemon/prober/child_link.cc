#include "daemon/prober/child_link.h"

#include <absl/strings/str_cat.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "daemon/prober/child_process.h"

namespace hbmtune::daemon {
namespace {

class ChildLink final : public ProbeLink {
 public:
  explicit ChildLink(ChildProcess child) : child_(std::move(child)) {}

  int64_t pid() const override { return child_.pid(); }
  UniqueFd& output() override { return child_.output(); }
  UniqueFd& errors() override { return child_.errors(); }
  int ended_fd() const override { return child_.pidfd(); }
  std::string StillThere() const override { return "is still there after SIGKILL"; }

  void Send(const std::string& request) override {
    std::string_view rest = request;
    while (!rest.empty()) {
      const ssize_t size = write(child_.input().get(), rest.data(), rest.size());
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return;
      rest.remove_prefix(static_cast<size_t>(size));
    }
  }

  std::optional<ProbeEnd> Ended() override {
    const std::optional<int> status = child_.Reap();
    if (!status) return std::nullopt;
    const bool killed = WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL;
    return ProbeEnd{absl::StrCat("ended with ", DescribeWaitStatus(*status)),
                    killed ? "; somebody killed it, perhaps the kernel for want of memory" : ""};
  }

  void Stop(StopLadder::Action action) override {
    switch (action) {
      case StopLadder::Action::kInterrupt:
        child_.input().Reset();
        return child_.Signal(SIGINT);
      case StopLadder::Action::kTerminate:
        return child_.Signal(SIGTERM);
      case StopLadder::Action::kKill:
        return child_.Signal(SIGKILL);
      case StopLadder::Action::kGiveUp:
        return;
    }
  }

 private:
  ChildProcess child_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeLink>> SpawnProbe(const std::string& program, int lock_fd) {
  auto child = ChildProcess::Spawn({program, {}, lock_fd});
  if (!child.ok()) return child.status();
  return std::make_unique<ChildLink>(*std::move(child));
}

}  // namespace hbmtune::daemon

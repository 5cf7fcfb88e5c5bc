#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "client/file_descriptor.h"
#include "client/flags.h"
#include "client/interrupt.h"
#include "client/request_flags.h"
#include "client/terminal.h"
#include "client/text.h"
#include "client/verbs.h"

namespace hbmtune::client {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter =
    "examples\n"
    "  hbmtune calibrate --device host\n"
    "  hbmtune estimate --local --device model:host --model gpt2 --seq-len 256\n"
    "  hbmtune calibrate --out /var/lib/hbmtune/profiles/host.toml\n"
    "\n"
    "Takes about a minute; leave the machine alone meanwhile. The profile says when,\n"
    "on what CPU and with how many threads it was measured.";

struct CalibrateFlags {
  std::string device = "host";
  std::string out;
  int64_t threads = 0;
  std::string budget = "45s";
};

// Where a private daemon of this user looks for profiles.
std::string UsualProfile() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string base = state != nullptr && *state != 0 ? state
                                                     : std::string(home ? home : "") +
                                                           "/.local/state";
  return base + "/hbmtune/profiles/host.toml";
}

// hbmtune-probe beside this program, or wherever $PATH has it: it has the kernels.
std::string ProbeProgram() {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate :
       {own / "hbmtune-probe", own.parent_path() / "libexec/hbmtune/hbmtune-probe"}) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "hbmtune-probe";
}

// A child whose lines we read. It dies with the terminal's Ctrl-C as we do.
class Child {
 public:
  absl::Status Start(std::vector<std::string> words) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError(std::strerror(errno));
    out_ = FileDescriptor(ends[0]);
    const FileDescriptor write_end(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int error = posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(),
                                   environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return absl::OkStatus();
    return absl::InternalError("cannot start " + words[0] + ": " + std::strerror(error));
  }

  // The next line, without its end; false when there is none.
  bool ReadLine(std::string& line) {
    for (;;) {
      if (const size_t end = text_.find('\n'); end != std::string::npos) {
        line = text_.substr(0, end);
        text_.erase(0, end + 1);
        return true;
      }
      if (Interrupted()) kill(pid_, SIGTERM);
      char buffer[512];
      const ssize_t got = read(out_.get(), buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      text_.append(buffer, static_cast<size_t>(got));
    }
  }

  int Wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
  FileDescriptor out_{-1};
  std::string text_;
};

void Show(Terminal& progress, const std::string& line) {
  char* rest = nullptr;
  const double done = std::strtod(line.c_str(), &rest);
  progress.Live("calibrating: " + std::to_string(static_cast<int>(100 * done)) + " %," + rest);
}

absl::StatusOr<ExitCode> RunCalibrate(const CalibrateFlags& flags) {
  if (flags.device != "host") {
    return absl::InvalidArgumentError("--device " + flags.device +
                                      ": only host can be calibrated so far");
  }
  const auto budget = ParseBudget(flags.budget);
  if (!budget.ok()) return budget.status();
  const fs::path out = flags.out.empty() ? UsualProfile() : flags.out;
  std::error_code error;
  if (out.has_parent_path()) fs::create_directories(out.parent_path(), error);
  if (error) {
    return absl::FailedPreconditionError("cannot make the folder " + out.parent_path().string() +
                                         ": " + error.message());
  }
  NoteFirstInterrupt();
  Child probe;
  absl::Status status = probe.Start({ProbeProgram(), "--calibrate", out.string(), "--threads",
                                     std::to_string(flags.threads), "--budget",
                                     std::to_string(*budget)});
  if (!status.ok()) return status;
  Terminal progress(stderr);
  for (std::string line; probe.ReadLine(line);) Show(progress, line);
  progress.ClearLive();
  const int code = probe.Wait();
  if (Interrupted()) return kInterrupted;
  if (code != 0) {  // it has said why
    return absl::InternalError("the calibration failed; no profile was written");
  }
  Terminal(stdout).Print("wrote " + out.string());
  return kDone;
}

}  // namespace

void AddCalibrate(CLI::App& app, Invocation& invocation) {
  CLI::App* verb =
      app.add_subcommand("calibrate", "measure this machine, so that estimates for it hold");
  verb->footer(kFooter);
  auto flags = std::make_shared<CalibrateFlags>();
  AddChoice(*verb, "--device", {"host"}, "what is measured [host]", flags->device)
      ->group("on what");
  AddNumber(*verb, "--threads", "threads, 0 for all cores [0]", flags->threads, 0, 1024)
      ->group("on what");
  verb->add_option("--budget", flags->budget,
                   "time for products: shapes that it does not reach are left out [45s]")
      ->type_name("TIME")
      ->group("on what");
  verb->add_option("--out", flags->out,
                   "the profile [$XDG_STATE_HOME/hbmtune/profiles/host.toml, which a private "
                   "daemon reads]")
      ->type_name("PATH")
      ->group("output");
  verb->callback(
      [flags, &invocation] { invocation.run = [flags] { return RunCalibrate(*flags); }; });
}

}  // namespace hbmtune::client

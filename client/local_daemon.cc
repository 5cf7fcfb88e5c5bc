#include "client/local_daemon.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "client/file_descriptor.h"
#include "client/socket_path.h"

namespace hbmtune::client {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPoll{2};
constexpr std::chrono::seconds kMostStartTime{15};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string RuntimeFolder() {
  std::string folder = Variable("XDG_RUNTIME_DIR");
  if (!folder.empty()) return folder + "/hbmtune";
  return "/tmp/hbmtune-" + std::to_string(getuid());
}

std::string StateFolder() {
  std::string folder = Variable("XDG_STATE_HOME");
  if (!folder.empty()) return folder + "/hbmtune";
  return Variable("HOME") + "/.local/state/hbmtune";
}

// hbmtuned beside this program, in ../sbin, or wherever $PATH has it; $HBMTUNED overrules.
std::string DaemonProgram() {
  if (std::string chosen = Variable("HBMTUNED"); !chosen.empty()) return chosen;
  std::error_code error;
  fs::path own = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate : {own / "hbmtuned", own.parent_path() / "sbin/hbmtuned"}) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "hbmtuned";
}

absl::Status Unavailable(const std::string& what, int error) {
  return absl::UnavailableError(what + ": " + std::strerror(error));
}

// A folder of this user's that nobody else may enter: whoever can write there could put a socket
// of his own in our way.
absl::Status MakePrivateFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Unavailable("cannot make " + folder, errno);
  }
  struct stat facts {};
  if (lstat(folder.c_str(), &facts) != 0) return Unavailable("cannot read " + folder, errno);
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != getuid()) {
    return absl::UnavailableError(folder + " is not a folder of this user's: remove it");
  }
  return absl::OkStatus();
}

// Everything that posix_spawn needs, freed in the end.
class SpawnPlan {
 public:
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

}  // namespace

LocalDaemon LocalDaemon::OfThisUser(const std::string& socket) {
  std::string usual = RuntimeFolder() + "/hbmtuned.sock";
  return {socket.empty() ? usual : socket, StateFolder()};
}

LocalDaemon::LocalDaemon(std::string socket, std::string state_folder)
    : socket_(std::move(socket)),
      state_folder_(std::move(state_folder)),
      log_(state_folder_ + "/hbmtuned.log") {}

absl::Status LocalDaemon::JoinOrStart() const {
  if (Probe(socket_).ok()) return absl::OkStatus();
  if (absl::Status status = MakeSocketFolder(); !status.ok()) return status;
  std::string lock_path = socket_ + ".starting";
  FileDescriptor lock(open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock.valid() || flock(lock.get(), LOCK_EX) != 0) {
    return Unavailable("cannot lock " + lock_path, errno);
  }
  return Probe(socket_).ok() ? absl::OkStatus() : Start();
}

// The usual folder must be private; one that the user named is the user's affair.
absl::Status LocalDaemon::MakeSocketFolder() const {
  fs::path folder = fs::path(socket_).parent_path();
  if (folder == RuntimeFolder()) return MakePrivateFolder(folder);
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  return error ? Unavailable("cannot make " + folder.string(), error.value()) : absl::OkStatus();
}

absl::Status LocalDaemon::Start() const {
  if (absl::Status status = MakePrivateFolder(state_folder_); !status.ok()) return status;
  pid_t child = 0;
  if (absl::Status status = Spawn(child); !status.ok()) return status;
  return AwaitSocket(child);
}

absl::Status LocalDaemon::Spawn(pid_t& child) const {
  std::vector<std::string> words = {DaemonProgram(), "--private",  "--socket",
                                    socket_,         "--state-dir", state_folder_};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  SpawnPlan plan;
  // Nothing of ours stays open in it, or `x=$(hbmtune …)` would wait for the daemon to end.
  posix_spawn_file_actions_addopen(&plan.actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&plan.actions, 1, log_.c_str(),
                                   O_CREAT | O_WRONLY | O_TRUNC | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&plan.actions, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&plan.actions, 3);
  // A session of its own, so that Ctrl-C and a closed terminal pass it by.
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setflags(&plan.attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                 POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setsigmask(&plan.attributes, &none);
  posix_spawnattr_setsigdefault(&plan.attributes, &all);
  int error = posix_spawnp(&child, arguments[0], &plan.actions, &plan.attributes,
                           arguments.data(), environ);
  if (error != 0) return Unavailable("cannot start " + words[0], error);
  return absl::OkStatus();
}

absl::Status LocalDaemon::AwaitSocket(pid_t child) const {
  auto deadline = steady_clock::now() + kMostStartTime;
  while (steady_clock::now() < deadline) {
    if (Probe(socket_).ok()) return absl::OkStatus();
    if (waitpid(child, nullptr, WNOHANG) == child) {
      std::string line = LastLogLine();
      return absl::UnavailableError("the private daemon did not start: " +
                                    (line.empty() ? "see " + log_ : line));
    }
    std::this_thread::sleep_for(kPoll);
  }
  kill(child, SIGTERM);
  return absl::UnavailableError("the private daemon does not listen after 15 s; see " + log_);
}

std::string LocalDaemon::LastLogLine() const {
  std::ifstream file(log_);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace hbmtune::client

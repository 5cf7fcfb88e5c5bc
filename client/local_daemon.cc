#include "client/local_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "client/socket_path.h"

namespace hbmtune::client {
namespace {

namespace fs = std::filesystem;

constexpr int kReadyFd = 3;
constexpr int kMostStartMilliseconds = 15'000;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string UsualSocket() {
  std::string runtime = Variable("XDG_RUNTIME_DIR");
  if (!runtime.empty()) return runtime + "/hbmtune/private.sock";
  std::string state = Variable("XDG_STATE_HOME");
  if (state.empty()) state = Variable("HOME") + "/.local/state";
  return state + "/hbmtune/private.sock";
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

// What posix_spawn needs: nothing of ours stays open in the daemon but the note (or
// `x=$(hbmtune …)` would wait for it to end), and it has a session and signals of its own, so
// that Ctrl-C and a closed terminal pass it by.
class SpawnPlan {
 public:
  explicit SpawnPlan(int note) {
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, note, kReadyFd);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, kReadyFd + 1);
    posix_spawnattr_init(&attributes);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
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

LocalDaemon::LocalDaemon(std::string socket)
    : socket_(std::move(socket)), usual_(socket_.empty()) {
  if (usual_) socket_ = UsualSocket();
}

absl::StatusOr<std::string> LocalDaemon::JoinOrStart() const {
  if (Probe(socket_).ok()) return socket_;
  return Start();
}

absl::StatusOr<std::string> LocalDaemon::Start() const {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Unavailable("cannot make a pipe", errno);
  FileDescriptor read_end(ends[0]);
  {
    FileDescriptor write_end(ends[1]);
    if (absl::Status status = Spawn(write_end); !status.ok()) return status;
  }
  return ReadReadyNote(read_end);
}

absl::Status LocalDaemon::Spawn(const FileDescriptor& note) const {
  std::vector<std::string> words = {DaemonProgram(), "--private", "--ready-fd",
                                    std::to_string(kReadyFd)};
  if (!usual_) words.insert(words.end(), {"--socket", socket_});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  SpawnPlan plan(note.get());
  pid_t child = 0;
  int error = posix_spawnp(&child, arguments[0], &plan.actions, &plan.attributes,
                           arguments.data(), environ);
  if (error != 0) return Unavailable("cannot start " + words[0], error);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadReadyNote(const FileDescriptor& note) {
  std::string text;
  char buffer[512];
  while (text.find('\n') == std::string::npos) {
    pollfd wait{note.get(), POLLIN, 0};
    int ready = poll(&wait, 1, kMostStartMilliseconds);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return absl::UnavailableError("the private daemon is not ready after 15 s");
    ssize_t got = read(note.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  std::string line = text.substr(0, text.find('\n'));
  if (line.starts_with("ready ")) return line.substr(6);
  if (line.starts_with("error ")) {
    return absl::UnavailableError("the private daemon did not start: " + line.substr(6));
  }
  return absl::UnavailableError("the private daemon ended before it was ready");
}

}  // namespace hbmtune::client

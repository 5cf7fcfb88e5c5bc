#include "tests/support/daemon_process.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

extern "C" char** environ;

namespace hbmtune::testing {

DaemonProcess::DaemonProcess(std::vector<std::string> flags) {
  std::string pattern = std::filesystem::temp_directory_path() / "hbmtuned-stderr-XXXXXX";
  close(mkstemp(pattern.data()));
  error_path_ = pattern;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  constexpr int kNote = 3;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, error_path_.c_str(), O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kNote);
  std::vector<std::string> words = {HBMTUNED, "--ready-fd", std::to_string(kNote)};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int error = posix_spawn(&pid_, HBMTUNED, &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) throw std::runtime_error("cannot start " HBMTUNED);
  char buffer[1024];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof buffer)) > 0;) {
    note_.append(buffer, static_cast<size_t>(size));
  }
  close(ends[0]);
}

DaemonProcess::~DaemonProcess() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::filesystem::remove(error_path_);
}

std::string DaemonProcess::http_address() const {
  const size_t at = note_.find("\nhttp ");
  if (at == std::string::npos) return "";
  return note_.substr(at + 6, note_.find('\n', at + 1) - at - 6);
}

void DaemonProcess::Signal(int signal) { kill(pid_, signal); }

std::optional<int> DaemonProcess::WaitFor(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) != pid_) {
    if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  pid_ = -1;
  return status;
}

std::string DaemonProcess::Errors() const {
  std::ostringstream text;
  text << std::ifstream(error_path_).rdbuf();
  return text.str();
}

std::shared_ptr<grpc::Channel> ConnectTo(const std::string& socket_path) {
  static int channels = 0;
  const std::filesystem::path path(socket_path);
  // Stays open as long as the process: the channel resolves it again whenever it reconnects.
  const int directory = open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  grpc::ChannelArguments arguments;
  arguments.SetInt("test.channel", ++channels);  // none shares another's backoff
  return grpc::CreateCustomChannel(
      "unix:/proc/self/fd/" + std::to_string(directory) + "/" + path.filename().string(),
      grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace hbmtune::testing

#include "tests/support/probe_unit.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>

namespace hbmtune::testing {
namespace {

bool CanConnect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return connected;
}

}  // namespace

ProbeUnit::ProbeUnit(const std::string& path, const std::string& program) {
  std::string words[] = {"systemd-socket-activate", "--accept", "--inetd", "-l", path, program};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                  words[4].data(), words[5].data(), nullptr};
  if (posix_spawnp(&pid_, argv[0], nullptr, nullptr, argv, environ) != 0) {
    throw std::runtime_error("systemd-socket-activate cannot be started");
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!CanConnect(path)) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no " + path);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

ProbeUnit::~ProbeUnit() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

}  // namespace hbmtune::testing

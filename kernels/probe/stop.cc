#include "kernels/probe/stop.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

namespace hbmtune::probe {
namespace {

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "the signal handler sets it");

void OnSignal(int) { stop.store(true, std::memory_order_relaxed); }

}  // namespace

std::atomic<bool>& StopFlag() { return stop; }

void WatchSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a prober that is gone shows as a failed write
}

void WatchInput(int input) {
  std::thread([input] {
    char discard[256];
    while (true) {
      const ssize_t got = read(input, discard, sizeof discard);
      if (got == 0 || (got < 0 && errno != EINTR)) break;
    }
    stop.store(true, std::memory_order_relaxed);
  }).detach();
}

}  // namespace hbmtune::probe

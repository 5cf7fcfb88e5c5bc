#include "kernels/probe/stop.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <iostream>
#include <thread>

namespace hbmtune::probe {
namespace {

// When a prober that may signal its probe sends SIGKILL (daemon/prober/stop_ladder.h).
constexpr unsigned kPatienceSeconds = 10;

std::atomic<bool> stop{false};
std::atomic<int> stop_signal{0};

void RequestStop() { stop.store(true, std::memory_order_relaxed); }

}  // namespace

std::atomic<bool>& StopFlag() { return stop; }
int StopSignal() { return stop_signal; }

// A handler would run on the stack of whatever thread computes. oneDNN 2.6's AVX-512 products do
// not survive that: 11 of 16 runs died of a corrupted heap on SIGTERM, none of 8 with AVX2. So
// the signals are blocked in every thread and one thread waits for them.
void WatchSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a prober that is gone shows as a failed write
  std::thread([signals] {
    for (int signal = 0; sigwait(&signals, &signal) == 0;) {
      stop_signal = signal;
      RequestStop();
    }
  }).detach();
}

void WatchInput(int input) {
  std::thread([input] {
    char discard[256];
    while (true) {
      const ssize_t got = read(input, discard, sizeof discard);
      if (got == 0 || (got < 0 && errno != EINTR)) break;
    }
    RequestStop();
    sleep(kPatienceSeconds);
    std::cerr << "hbmtune-probe: told to stop " << kPatienceSeconds
              << " s ago and still there; it kills itself" << std::endl;
    kill(getpid(), SIGKILL);
  }).detach();
}

}  // namespace hbmtune::probe

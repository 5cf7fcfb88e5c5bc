#include "client/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "client/errors.h"

namespace hbmtune::client {
namespace {

volatile std::sig_atomic_t g_patience = 0;  // interruptions that are still only noted
volatile std::sig_atomic_t g_noted = 0;

constexpr unsigned kLeavingSeconds = 2;

void Leave(int) {
  // The live line may stand there without an end.
  if (isatty(STDOUT_FILENO) == 1) (void)!write(STDOUT_FILENO, "\n", 1);
  _exit(kInterrupted);
}

void Handle(int signal) {
  if (g_patience <= 0) Leave(signal);
  g_patience = g_patience - 1;
  g_noted = g_noted + 1;
  if (g_noted == 2) alarm(kLeavingSeconds);
}

void Catch(int patience) {
  g_noted = 0;
  g_patience = patience;
  struct sigaction action {};
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  alarm(0);
  action.sa_handler = Leave;
  sigaction(SIGALRM, &action, nullptr);
}

}  // namespace

void LeaveOnInterrupt() { Catch(0); }
void NoteFirstInterrupt() { Catch(1); }
void NoteTwoInterrupts() { Catch(2); }
bool Interrupted() { return g_noted != 0; }
bool InterruptedTwice() { return g_noted > 1; }

}  // namespace hbmtune::client

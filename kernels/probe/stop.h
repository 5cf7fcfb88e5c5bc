#pragma once

#include <atomic>

namespace hbmtune::probe {

// Set by SIGINT and SIGTERM (after WatchSignals) and by end of file (after WatchInput).
std::atomic<bool>& StopFlag();

void WatchSignals();
// A thread that reads `input` until its end, then sets the flag.
void WatchInput(int input);

}  // namespace hbmtune::probe

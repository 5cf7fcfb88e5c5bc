#pragma once

#include <atomic>

namespace hbmtune::probe {

// Set by SIGINT and SIGTERM (after WatchSignals) and by end of file (after WatchInput).
std::atomic<bool>& StopFlag();
// The signal that set it last, 0 for none.
int StopSignal();

// Blocks both signals in the caller and a thread of its own waits for them. To be called before
// any other thread starts: threads inherit what is blocked.
void WatchSignals();
// A thread that reads `input` until its end, then sets the flag. A process that is still there ten
// seconds later kills itself (SIGKILL): whoever asked is gone, or may not signal it.
void WatchInput(int input);

}  // namespace hbmtune::probe

#pragma once

// Ctrl-C. SIGINT and SIGTERM are the same to us.
namespace hbmtune::client {

// From now on an interruption ends the program at once with exit code 130.
void LeaveOnInterrupt();

// From now on the first interruption is only noted, for whoever asks Interrupted(); the second
// ends the program at once with exit code 130. Starts anew at each call.
void NoteFirstInterrupt();

// As above, but the second is noted too, for whoever has to send something before leaving: within
// two seconds the program ends all the same, and at the third interruption at once.
void NoteTwoInterrupts();

bool Interrupted();
bool InterruptedTwice();

}  // namespace hbmtune::client

#pragma once

namespace hbmtune::daemon {

// `hbmtuned db backup FILE | check | export [--state-dir DIR]`, beside a running daemon or without
// one; `argv` begins with "db". Exit status: 0 done, 1 failed or not whole (sentences on stderr),
// 2 wrong words.
int DbCommand(int argc, const char* const* argv);

}  // namespace hbmtune::daemon

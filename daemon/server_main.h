#pragma once

namespace hbmtune::daemon {

// The whole program. Returns its exit status: 0 it was told to leave, 1 it could not run (one
// sentence on stderr), 2 wrong flags or config.
int ServerMain(int argc, const char* const* argv);

}  // namespace hbmtune::daemon

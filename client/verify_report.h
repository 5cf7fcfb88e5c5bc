#pragma once

#include "client/terminal.h"
#include "client/verify_output.h"

namespace hbmtune::client {

// One run phase by phase, several in a line each; then where they first differ.
void PrintVerification(Terminal& terminal, const VerifyOutput& output);

}  // namespace hbmtune::client

#pragma once

#include <CLI/App.hpp>

#include "client/verbs.h"

namespace hbmtune::client {

// Puts name, version, verbs and help into an empty app.
void BuildApp(CLI::App& app, Invocation& invocation);

// The whole program: parses, runs the verb, returns the exit code.
int ClientMain(int argc, char** argv);

}  // namespace hbmtune::client

#pragma once

#include <CLI/App.hpp>
#include <string>

// Completion scripts, made from the flags themselves so that they cannot drift from them. A flag
// whose type is "a|b|c" completes to those values; one of type PATH or MODEL to files.
namespace hbmtune::client {

std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);

}  // namespace hbmtune::client

#pragma once

#include <CLI/App.hpp>
#include <string>

// Completion scripts, made from the flags themselves so that they cannot drift from them. What is
// of type "a|b|c" completes to those values, PATH to files, MODEL to presets, folders and JSON
// files, DEVICE and STUDY to names that the daemon is asked for (that of the line's --local or
// --socket).
namespace hbmtune::client {

std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);

}  // namespace hbmtune::client

#pragma once

#include <CLI/App.hpp>
#include <string>

namespace hbmtune::client {

// The help of an app or verb in at most 80 columns: what it does, usage, its flags by group in
// the order in which they were added, its verbs, and the footer (examples) as it stands.
std::string HelpText(const CLI::App& app);

// Makes --help of `app`, and of verbs added later, print HelpText.
void UseHelpText(CLI::App& app);

}  // namespace hbmtune::client

#pragma once

#include "client/compare_output.h"
#include "client/terminal.h"

namespace hbmtune::client {

// Puts the devices into their order and fills in what follows from all of them: shares of the best
// speed, dollars a token, the fastest and the cheapest.
void Rank(CompareOutput& output);

// One table of 80 columns and, below it, which device and why.
void PrintComparison(Terminal& terminal, const CompareOutput& output);

// "mi300x" of "model:mi300x".
std::string ShortName(const std::string& device);

}  // namespace hbmtune::client

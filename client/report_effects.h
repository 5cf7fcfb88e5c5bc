#pragma once

#include <vector>

#include "client/output_json.h"
#include "client/terminal.h"

namespace hbmtune::client {

// What each tunable would do, changed alone, most saved first, in 80 columns; a tunable's best
// three values, and how many lines that leaves out. `fits`: the config as it is does.
void PrintEffects(Terminal& terminal, const std::vector<Effect>& effects, bool fits);

// "+28 %", "−3 %", "0 %".
std::string SignedPercent(double ratio);

}  // namespace hbmtune::client

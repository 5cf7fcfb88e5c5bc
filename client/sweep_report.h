#pragma once

#include <string>

#include "client/sweep_output.h"
#include "client/terminal.h"

namespace hbmtune::client {

// "▕████    ▏ 1,234/3,840 configs · 96 fit · front 12 · best 860 tok/s · 3.1 s".
std::string SweepLine(const SweepOutput& sweep);

// Counts and the Pareto front, or what needs least when nothing fits.
void PrintSweep(Terminal& terminal, const SweepOutput& sweep);

// One line of figures and of every field of the train config, commas between.
std::string CsvTitles();
std::string CsvRow(const SweptConfigOutput& swept);

}  // namespace hbmtune::client

#include "client/report_effects.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "client/table.h"
#include "client/text.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

constexpr size_t kMostOfATunable = 3;
constexpr size_t kChangeColumns = 38;

std::string SignedBytes(int64_t bytes) {
  if (bytes == 0) return "–";
  return (bytes < 0 ? "−" : "") + FormatBytes(std::abs(bytes));
}

void AddRow(Table& table, const Effect& effect, const std::string& verdict) {
  const int64_t host = std::abs(effect.host_bytes) < kMiB ? 0 : effect.host_bytes;
  // What must change along goes on a line of its own when both do not fit on one.
  std::string indent = "  ";
  std::vector<std::string> lines = Wrap(effect.change, kChangeColumns - 4);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i == 0) {
      table.Add({indent + lines[i], SignedBytes(effect.saved_bytes),
                 SignedPercent(effect.cost_ratio), SignedBytes(host), verdict});
    } else {
      table.Add({"    " + lines[i]});
    }
  }
}

}  // namespace

std::string SignedPercent(double ratio) {
  const auto percent = std::lround(100 * ratio);
  if (percent == 0) return "0 %";
  return (percent > 0 ? "+" : "−") + FormatCount(std::labs(percent)) + " %";
}

void PrintEffects(Terminal& terminal, const std::vector<Effect>& effects, bool fits) {
  terminal.Print("");
  if (effects.empty()) {
    terminal.Print("no single change saves memory or time");
    return;
  }
  Table table({{"each tunable changed alone"}, {"saves", Align::kRight},
               {"time", Align::kRight}, {"host memory", Align::kRight}, {""}});
  std::map<std::string, size_t> shown;
  size_t left_out = 0;
  for (const Effect& effect : effects) {
    if (++shown[effect.tunable] > kMostOfATunable) {
      ++left_out;
      continue;
    }
    std::string verdict;
    if (effect.fits != fits) verdict = effect.fits ? "fits" : "no fit";
    AddRow(table, effect, verdict);
  }
  bool title = true;
  for (const std::string& line : table.Lines()) {
    title ? terminal.Print(Terminal::Style::kDim, line) : terminal.Print(line);
    title = false;
  }
  if (left_out > 0) {
    terminal.Print("  (" + std::to_string(left_out) + " more values of these: --output json)");
  }
  const bool one_fits = std::any_of(effects.begin(), effects.end(),
                                    [](const Effect& effect) { return effect.fits; });
  if (!fits && !one_fits) terminal.Print("none of these alone makes it fit");
}

}  // namespace hbmtune::client

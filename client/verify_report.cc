#include "client/verify_report.h"

#include <cmath>
#include <cstdio>

#include "client/describe.h"
#include "client/table.h"
#include "client/text.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

using Style = Terminal::Style;

std::string Percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * ratio);
  return text;
}

std::string Place(const std::string& phase, int64_t step) {
  return step == 0 ? phase : phase + " of step " + std::to_string(step);
}

std::string Event(int64_t bytes, const std::string& op) {
  if (bytes == 0 && op.empty()) return "nothing more";
  const std::string size = FormatCount(std::abs(bytes)) + " bytes";
  if (bytes < 0) return "frees " + size;
  return "allocates " + size + (op.empty() ? "" : " for " + op);
}

void PrintTable(Terminal& terminal, const Table& table) {
  bool title = true;
  for (const std::string& line : table.Lines()) {
    title ? terminal.Print(Style::kDim, line) : terminal.Print(line);
    title = false;
  }
}

void PrintPhases(Terminal& terminal, const RunVerificationOutput& run) {
  terminal.Print(DescribeWorkload(run.workload));
  terminal.Print(DescribeConfigShort(run.train_config, run.workload.framework));
  terminal.Print("");
  Table table({{"phase"}, {"recorded peak", Align::kRight}, {"estimated", Align::kRight},
               {"error", Align::kRight}, {"events"}});
  for (const PhaseVerification& phase : run.phases) {
    table.Add({Place(phase.phase, phase.step), FormatBytes(phase.recorded_peak_bytes),
               FormatBytes(phase.expected_peak_bytes), Percent(phase.error_ratio),
               phase.same_events ? "same" : "differ"});
  }
  PrintTable(terminal, table);
}

void PrintRuns(Terminal& terminal, const VerifyOutput& output) {
  Table table({{"run"}, {"worst", Align::kRight}, {"events"}, {"in"}});
  for (const RunVerificationOutput& run : output.verifications) {
    if (run.refusal) {
      table.Add({Truncate(run.name, 48), "–", "refused", *run.refusal});
    } else {
      table.Add({Truncate(run.name, 48), Percent(run.worst_ratio),
                 run.same_events ? "same" : "differ", run.equal ? "" : run.worst_phase});
    }
  }
  PrintTable(terminal, table);
}

void PrintDifference(Terminal& terminal, const RunVerificationOutput& run) {
  const FirstDifference& d = *run.first_difference;
  terminal.Print("");
  terminal.Print("first difference: " + Place(d.phase, d.step) + ", event " +
                 FormatCount(d.event));
  terminal.Print("  recorded   " + Event(d.recorded_bytes, d.recorded_op));
  terminal.Print("  estimated  " + Event(d.expected_bytes, d.expected_op));
}

}  // namespace

void PrintVerification(Terminal& terminal, const VerifyOutput& output) {
  const bool one = output.verifications.size() == 1;
  if (one && output.verifications[0].refusal) {
    terminal.Print(Style::kRed, "cannot be compared: " + *output.verifications[0].refusal);
    return;
  }
  one ? PrintPhases(terminal, output.verifications[0]) : PrintRuns(terminal, output);
  for (const RunVerificationOutput& run : output.verifications) {
    if (!run.first_difference || (!one && run.equal)) continue;
    if (!one) terminal.Print("");
    if (!one) terminal.Print(run.name);
    PrintDifference(terminal, run);
    if (!one) break;  // the first is where to look first
  }
  terminal.Print("");
  std::string verdict = output.equal ? "equal" : "different";
  verdict += " within " + Percent(output.tolerance_ratio) + " of the activations: ";
  verdict += FormatCount(output.equal_runs) + " of " + FormatCount(output.runs) +
             (output.runs == 1 ? " run, " : " runs, ") + FormatCount(output.same_event_runs) +
             " with the same events in the same order";
  if (output.refused_runs > 0) {
    verdict += "; " + FormatCount(output.refused_runs) + " could not be compared";
  }
  terminal.Print(output.equal ? Style::kGreen : Style::kRed, verdict);
}

}  // namespace hbmtune::client

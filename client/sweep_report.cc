#include "client/sweep_report.h"

#include <algorithm>
#include <cmath>

#include "client/config_differences.h"
#include "client/describe.h"
#include "client/prose.h"
#include "client/text.h"
#include "kernels/core/field_path.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

constexpr size_t kBarColumns = 12;

std::string Bar(double done_ratio) {
  const auto full = static_cast<size_t>(std::clamp(done_ratio, 0.0, 1.0) * kBarColumns);
  std::string bar = "▕";
  for (size_t i = 0; i < kBarColumns; ++i) bar += i < full ? "█" : " ";
  return bar + "▏";
}

std::string Configs(int64_t count) {
  return FormatCount(count) + (count == 1 ? " config" : " configs");
}

std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string Cell(const Json& value) {
  return value.is_string() ? Quoted(value.get<std::string>()) : value.dump();
}

constexpr const char* kFigures[] = {"tokens_per_second", "step_seconds", "peak_used_bytes",
                                    "peak_reserved_bytes", "peak_allocated_bytes", "host_bytes",
                                    "fits", "peak_phase", "limited_by", "evidence"};

void PrintLeast(Terminal& terminal, const SweepOutput& sweep) {
  const SweptConfigOutput& least = *sweep.least;
  const std::string nothing =
      sweep.complete ? "nothing fits"
                     : "none of the " + FormatCount(sweep.estimated) + " estimated so far fits";
  std::string reason = " in " + FormatBytes(least.estimate.ceiling_bytes) + ": the least is " +
                       FormatBytes(least.estimate.peak_used_bytes);
  if (!DeviceIsShort(least.estimate) && HostIsShort(least.estimate, sweep.host_ceiling_bytes)) {
    reason = " in the host's memory: what needs least of the device needs " +
             DescribeHostNeed(least.estimate, sweep.host_ceiling_bytes);
  }
  terminal.Print(Terminal::Style::kRed, nothing + reason);
  terminal.Print("  " + DescribeConfigShort(least.train_config, sweep.workload.framework));
  terminal.Print("  " + DescribeBreakdown(least.estimate.breakdown));
}

// Without what all of the front have in common, which stands above.
void PrintFront(Terminal& terminal, const SweepOutput& sweep) {
  std::vector<TrainConfig> configs;
  for (const SweptConfigOutput& swept : sweep.front) configs.push_back(swept.train_config);
  const ConfigsApart apart = DescribeApart(configs, sweep.workload.framework);
  const bool several = configs.size() > 1;
  PrintProse(terminal, sweep.complete ? "Pareto front: none is both faster and leaner"
                                      : "Pareto front of what was tried");
  if (several && !apart.common.empty()) {
    PrintProse(terminal, "all of them: " + apart.common, "", "  ");
  }
  Table table({{"tok/s", Align::kRight}, {"peak", Align::kRight}, {"host", Align::kRight},
               {several ? "differs in" : "train config"}});
  for (size_t i = 0; i < configs.size(); ++i) {
    const Estimate& estimate = sweep.front[i].estimate;
    const int64_t host = estimate.host_bytes;
    table.Add({FormatNumber(estimate.tokens_per_second), FormatBytes(estimate.peak_used_bytes),
               host >= kMiB ? FormatBytes(host) : "–", several ? apart.own[i] : apart.common});
  }
  PrintTable(terminal, table);
}

}  // namespace

std::string SweepLine(const SweepOutput& sweep) {
  const int64_t done = sweep.estimated + sweep.refused;
  std::string line = Bar(sweep.total > 0 ? double(done) / double(sweep.total) : 0) + " " +
                     FormatCount(done) + "/" + Configs(sweep.total) + " · " +
                     FormatCount(sweep.fitting) + " fit";
  if (!sweep.front.empty()) {
    line += " · front " + FormatCount(static_cast<int64_t>(sweep.front.size())) + " · best " +
            FormatNumber(sweep.front.front().estimate.tokens_per_second) + " tok/s";
  }
  return line + " · " + FormatDuration(sweep.elapsed_seconds);
}

void PrintSweep(Terminal& terminal, const SweepOutput& sweep) {
  if (!sweep.complete && sweep.estimated + sweep.refused == 0) {
    return terminal.Print("interrupted before a config was estimated");
  }
  terminal.Print(DescribeWorkload(sweep.workload) + " on " + sweep.device);
  std::string counts = Configs(sweep.total) + ": " + FormatCount(sweep.estimated) +
                       " estimated, " + FormatCount(sweep.fitting) + " fit";
  if (sweep.refused > 0) counts += ", " + FormatCount(sweep.refused) + " refused";
  const int64_t left = sweep.total - sweep.estimated - sweep.refused;
  if (!sweep.complete) counts = "interrupted, " + FormatCount(left) + " not tried; of " + counts;
  terminal.Print(counts + " · " + FormatDuration(sweep.elapsed_seconds));
  if (sweep.refused > 0) terminal.Print("  refused, the first: " + sweep.refusal);
  terminal.Print("");
  if (sweep.front.empty() && sweep.least) return PrintLeast(terminal, sweep);
  if (sweep.front.empty()) {
    if (sweep.estimated == 0) return;
    return terminal.Print(Terminal::Style::kRed,
                          "nothing fits: each config that was estimated takes over 256 TiB");
  }
  PrintFront(terminal, sweep);
  const Estimate& first = sweep.front.front().estimate;
  terminal.Print("");
  terminal.Print("evidence " + DescribeEvidence(first.evidence, first.interval) + ", of " +
                 FormatBytes(first.ceiling_bytes) + " that may be used");
}

std::string CsvTitles() {
  std::string line;
  for (const char* figure : kFigures) line += (line.empty() ? "" : ",") + std::string(figure);
  for (const std::string& path : FieldPaths<TrainConfig>()) line += "," + path;
  return line + "\n";
}

std::string CsvRow(const SweptConfigOutput& swept) {
  const Json estimate = ToJson(swept.estimate);
  std::string line;
  for (const char* figure : kFigures) {
    if (!line.empty()) line += ",";
    line += Cell(estimate[figure]);
  }
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    line += "," + Cell(GetField(swept.train_config, path).value_or(Json("")));
  }
  return line + "\n";
}

}  // namespace hbmtune::client

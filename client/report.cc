#include "client/report.h"

#include <algorithm>
#include <cmath>

#include "client/describe.h"
#include "client/progress.h"
#include "client/prose.h"
#include "client/table.h"
#include "client/text.h"
#include "kernels/core/units.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

using Style = Terminal::Style;

constexpr size_t kLeftColumns = 46;
constexpr size_t kRightColumns = 35;  // "evidence PREDICTED (peak −3 %…+5 %)"
constexpr size_t kNarrow = 76;  // under this, two columns would be cut
constexpr size_t kBarColumns = 30;

std::string DescribeDevice(const v1::Device& device, const v1::Ceiling& ceiling) {
  int64_t memory = ceiling.capacity_bytes() > 0 ? ceiling.capacity_bytes() : device.memory_bytes();
  std::string text = device.name();
  if (!device.product().empty()) text += ", " + device.product();
  text += ", " + FormatBytes(memory);
  if (device.kind() == v1::DEVICE_KIND_HOST) {
    return text + " of its memory, measured by real training steps";
  }
  if (device.kind() != v1::DEVICE_KIND_MODEL) return text;
  return text + ", modelled (figures: " + std::to_string(device.measured_figures()) +
         " measured, " + std::to_string(device.datasheet_figures()) + " from the datasheet)";
}

// The figures of the best: measured when they were, else the model's.
Figures Known(const std::optional<Measurement>& measurement,
              const std::optional<Estimate>& estimate) {
  if (measurement) return FiguresOf(*measurement);
  return estimate ? FiguresOf(*estimate) : Figures{};
}

std::vector<std::string> DescribeFigures(const RecommendationOutput& recommendation) {
  Figures figures = Known(recommendation.measurement, recommendation.estimate);
  int64_t capacity = figures.capacity_bytes > 0 ? figures.capacity_bytes
                                                : recommendation.ceiling.capacity_bytes;
  std::vector<std::string> lines = {
      FormatNumber(figures.tokens_per_second) + " tok/s, " + FormatDuration(figures.step_seconds) +
          " a step",
      "peak " + FormatBytes(figures.peak_bytes) + " of " + FormatBytes(capacity) + " (" +
          FormatShare(static_cast<double>(figures.peak_bytes), static_cast<double>(capacity)) +
          ")"};
  if (figures.host_bytes > 0) lines.push_back("host memory " + FormatBytes(figures.host_bytes));
  if (!recommendation.limited_by.empty()) {
    lines.push_back("limited by: " + recommendation.limited_by);
  }
  return lines;
}

size_t LeftColumns(const Terminal& terminal) {
  const size_t columns = std::max(terminal.columns(), kNarrow);
  return std::min(kLeftColumns, columns - kRightColumns - 2);
}

void PrintBeside(Terminal& terminal, const std::vector<std::string>& left,
                 const std::vector<std::string>& right) {
  if (terminal.columns() < kNarrow) {
    for (const auto& lines : {left, right}) {
      for (const std::string& line : lines) PrintProse(terminal, line, "  ", "    ");
    }
    return;
  }
  const size_t beside = LeftColumns(terminal);
  std::vector<std::string> wrapped;
  for (const std::string& line : left) {
    std::string indent;
    for (const std::string& part : Wrap(line, beside - 4)) {
      wrapped.push_back(indent + part);
      indent = "  ";
    }
  }
  for (size_t i = 0; i < std::max(wrapped.size(), right.size()); ++i) {
    std::string line = "  " + (i < wrapped.size() ? wrapped[i] : "");
    if (i < right.size()) line = PadRight(line, beside + 2) + right[i];
    terminal.Print(line);
  }
}

void PrintRunnersUp(Terminal& terminal, const RecommendationOutput& recommendation) {
  if (recommendation.runners_up.empty()) return;
  Table table({{"runners-up"}, {"tok/s", Align::kRight}, {"peak", Align::kRight},
               {"evidence"}, {"differs in"}});
  int rank = 2;
  for (const CandidateOutput& candidate : recommendation.runners_up) {
    table.Add({"  #" + std::to_string(rank++), FormatNumber(candidate.tokens_per_second),
               FormatBytes(candidate.peak_used_bytes), std::string(Name(candidate.evidence)),
               candidate.differs_in});
  }
  terminal.Print("");
  PrintTable(terminal, table);
}

// "  offload.optimizer=cpu_adam  needs 12.00 GiB, costs 9 % time: fits".
void PrintHints(Terminal& terminal, const std::vector<HintOutput>& hints) {
  if (hints.empty()) return;
  terminal.Print("what would help:");
  Table table({{""}, {""}});
  for (const HintOutput& hint : hints) {
    std::string effect = "needs " + FormatBytes(hint.peak_used_bytes);
    auto percent = std::lround(100 * hint.cost_ratio);
    if (percent != 0) {
      effect += percent > 0 ? ", costs " : ", wins ";
      effect += std::to_string(std::labs(percent)) + " % time";
    }
    table.Add({"  " + hint.change, effect + (hint.fits ? ": fits" : ": still does not fit")});
  }
  std::vector<std::string> lines = table.Lines();
  for (size_t i = 1; i < lines.size(); ++i) terminal.Print(lines[i]);
}

void PrintNothingFits(Terminal& terminal, const RecommendationOutput& recommendation) {
  if (!recommendation.shortfall) {
    PrintProse(terminal, recommendation.why);
    return;
  }
  const ShortfallOutput& shortfall = *recommendation.shortfall;
  PrintProse(terminal, shortfall.message);
  PrintProse(terminal, DescribeBreakdown(shortfall.estimate.breakdown), "  ", "  ");
  PrintHints(terminal, shortfall.hints);
}

std::string Bar(int64_t bytes, int64_t whole) {
  double share = whole > 0 ? static_cast<double>(bytes) / static_cast<double>(whole) : 0;
  auto full = static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * kBarColumns));
  std::string bar;
  for (size_t i = 0; i < full; ++i) bar += "█";
  return bar.empty() && bytes > 0 ? "▏" : bar;
}

std::string VerdictLine(const EstimateOutput& output) {
  const Estimate& estimate = output.estimate;
  const int64_t host_ceiling_bytes = output.host_ceiling_bytes;
  std::string short_of;
  if (HostIsShort(estimate, host_ceiling_bytes)) {
    short_of = "needs " + DescribeHostNeed(estimate, host_ceiling_bytes);
    if (!DeviceIsShort(estimate)) return "does not fit: " + short_of;
  }
  // The daemon's default there, so that a study leaves room for the machine's other work.
  const std::string whole = output.device.ends_with("host")
                                ? "--memory, or half of the machine's"
                                : "the device has " + FormatBytes(estimate.capacity_bytes);
  return (estimate.fits ? "fits: " : "does not fit: ") + FormatBytes(estimate.peak_used_bytes) +
         " of " + FormatBytes(estimate.ceiling_bytes) + " that may be used (" + whole + ")" +
         (short_of.empty() ? "" : ", and " + short_of);
}

}  // namespace

void PrintHeader(Terminal& terminal, const v1::Study& study, const v1::Device& device) {
  auto workload = FromProto<Workload>(study.workload());
  const std::string indent(9, ' ');
  PrintProse(terminal, DescribeWorkload(workload), "study " + NumberOf(study.name()) + "  ", indent,
             kNoLimit);
  PrintProse(terminal, DescribeDevice(device, study.ceiling()), "device   ", indent, kNoLimit);
}

void PrintRecommendation(Terminal& terminal, const RecommendationOutput& recommendation) {
  if (!recommendation.train_config) {
    PrintNothingFits(terminal, recommendation);
    return;
  }
  Interval interval = recommendation.estimate && !recommendation.measurement
                          ? recommendation.estimate->interval
                          : Interval{};
  terminal.Print("");
  terminal.Print(Style::kBold,
                 PadRight("recommended", LeftColumns(terminal) + 2) + "evidence " +
                     DescribeEvidence(*recommendation.evidence, interval));
  PrintBeside(terminal,
              DescribeConfig(*recommendation.train_config, recommendation.workload.framework),
              DescribeFigures(recommendation));
  if (!recommendation.why.empty()) PrintProse(terminal, recommendation.why, "  ", "  ");
  PrintRunnersUp(terminal, recommendation);
}

void PrintEstimate(Terminal& terminal, const EstimateOutput& output) {
  const Estimate& estimate = output.estimate;
  terminal.Print(DescribeWorkload(output.workload) + " on " + output.device);
  terminal.Print(DescribeConfigShort(output.train_config, output.workload.framework));
  terminal.Print("");
  Table table({{"memory at the peak"}, {"", Align::kRight}, {""}});
  auto owners = estimate.breakdown;
  std::stable_sort(owners.begin(), owners.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  for (const CategoryBytes& owner : owners) {
    if (owner.bytes == 0) continue;
    table.Add({"  " + std::string(Name(owner.category)), FormatBytes(owner.bytes),
               Bar(owner.bytes, estimate.peak_used_bytes)});
  }
  table.Add({"  allocated (" + estimate.peak_phase + ")",
             FormatBytes(estimate.peak_allocated_bytes), ""});
  if (estimate.save_peak_bytes > 0) {
    table.Add({"  allocated (save)", FormatBytes(estimate.save_peak_bytes), ""});
  }
  table.Add({"  reserved", FormatBytes(estimate.peak_reserved_bytes), ""});
  table.Add({"  used", FormatBytes(estimate.peak_used_bytes), ""});
  for (const std::string& line : table.Lines()) terminal.Print(line);
  terminal.Print("");
  terminal.Print(estimate.fits ? Style::kGreen : Style::kRed,
                 VerdictLine(output));
  if (estimate.host_bytes > 0) terminal.Print("host memory " + FormatBytes(estimate.host_bytes));
  terminal.Print(FormatDuration(estimate.step_seconds) + " a step, " +
                 FormatNumber(estimate.tokens_per_second) + " tok/s");
  if (!estimate.limited_by.empty()) terminal.Print("limited by: " + estimate.limited_by);
  terminal.Print("evidence " + DescribeEvidence(estimate.evidence, estimate.interval));
}

}  // namespace hbmtune::client

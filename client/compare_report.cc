#include "client/compare_report.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "client/config_differences.h"
#include "client/describe.h"
#include "client/prose.h"
#include "client/table.h"
#include "client/text.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

constexpr size_t kColumns = 80;

// All of it fits 80 columns, also where output is no terminal.
void Say(Terminal& terminal, const std::string& text, const std::string& rest = "",
         const std::string& first = "") {
  PrintProse(terminal, text, first, rest, kColumns);
}

// "$0.45", "$0.0123": three digits, two of them cents at least.
std::string Dollars(double dollars) {
  char text[32];
  std::snprintf(text, sizeof text, dollars < 0.0995 ? "$%.3g" : "$%.2f", dollars);
  return text;
}

bool IsPriced(const ComparedDeviceOutput& device) {
  return device.dollars_per_million_tokens.has_value();
}

bool IsBefore(const ComparedDeviceOutput& a, const ComparedDeviceOutput& b) {
  if (a.train_config.has_value() != b.train_config.has_value()) return a.train_config.has_value();
  if (IsPriced(a) != IsPriced(b)) return IsPriced(a);
  if (IsPriced(a) && a.dollars_per_million_tokens != b.dollars_per_million_tokens) {
    return *a.dollars_per_million_tokens < *b.dollars_per_million_tokens;
  }
  if (a.tokens_per_second != b.tokens_per_second) {
    return a.tokens_per_second > b.tokens_per_second;
  }
  return a.device < b.device;
}

std::vector<ComparedDeviceOutput> Fitting(const CompareOutput& output) {
  std::vector<ComparedDeviceOutput> fitting;
  for (const ComparedDeviceOutput& device : output.devices) {
    if (device.train_config) fitting.push_back(device);
  }
  return fitting;
}

Table FiguresTable(const std::vector<ComparedDeviceOutput>& fitting, bool priced) {
  std::vector<Column> columns = {{"device"},
                                 {"tok/s", Align::kRight},
                                 {"of best", Align::kRight},
                                 {"peak reserved", Align::kRight},
                                 {"of", Align::kRight},
                                 {"margin", Align::kRight}};
  if (priced) columns.push_back({"$/M tokens", Align::kRight});
  Table table(columns);
  for (const ComparedDeviceOutput& device : fitting) {
    table.Add({ShortName(device.device), FormatNumber(device.tokens_per_second),
               FormatShare(device.relative_ratio, 1), FormatBytes(device.peak_reserved_bytes),
               FormatBytes(device.capacity_bytes),
               FormatShare(static_cast<double>(device.margin_bytes),
                           static_cast<double>(device.capacity_bytes)),
               IsPriced(device) ? Dollars(*device.dollars_per_million_tokens).substr(1)
               : priced         ? "–"
                                : ""});
  }
  return table;
}

// Figures of a device on one line, its config on the next.
void PrintFitting(Terminal& terminal, const CompareOutput& output,
                  const std::vector<ComparedDeviceOutput>& fitting) {
  std::vector<TrainConfig> configs;
  bool priced = false;
  for (const ComparedDeviceOutput& device : fitting) {
    configs.push_back(*device.train_config);
    priced = priced || IsPriced(device);
  }
  const ConfigsApart apart = DescribeApart(configs, output.workload.framework);
  if (fitting.size() > 1 && !apart.common.empty()) {
    Say(terminal, "on each: " + apart.common, "  ");
  }
  const std::vector<std::string> lines = FiguresTable(fitting, priced).Lines();
  terminal.Print("");
  terminal.Print(Terminal::Style::kDim, lines[0]);
  for (size_t i = 0; i < fitting.size(); ++i) {
    terminal.Print(lines[i + 1]);
    const std::string config = fitting.size() > 1 ? apart.own[i] : apart.common;
    Say(terminal, config, "    ", "  ");
  }
}

void PrintOthers(Terminal& terminal, const CompareOutput& output) {
  size_t width = 0;
  for (const ComparedDeviceOutput& device : output.devices) {
    width = std::max(width, DisplayWidth(ShortName(device.device)));
  }
  for (const ComparedDeviceOutput& device : output.devices) {
    if (device.train_config) continue;
    Say(terminal, device.message, std::string(width + 2, ' '),
        PadRight(ShortName(device.device), width) + "  ");
  }
}

const ComparedDeviceOutput& Named(const CompareOutput& output, const std::string& name) {
  return *std::find_if(output.devices.begin(), output.devices.end(),
                       [&](const auto& device) { return device.device == name; });
}

// "1.4 times mi325x"; nothing when no other one fits.
std::string Lead(const std::vector<ComparedDeviceOutput>& fitting,
                 const ComparedDeviceOutput& best) {
  const ComparedDeviceOutput* next = nullptr;
  for (const ComparedDeviceOutput& device : fitting) {
    if (device.device == best.device) continue;
    if (next == nullptr || device.tokens_per_second > next->tokens_per_second) next = &device;
  }
  if (next == nullptr) return "";
  return ", " + FormatNumber(best.tokens_per_second / next->tokens_per_second) + " times " +
         ShortName(next->device);
}

// "memory: mi300x and h100-80g; compute: mi210", or "memory" of all.
std::string Limits(const std::vector<ComparedDeviceOutput>& fitting) {
  std::map<std::string, std::vector<std::string>> devices;
  std::vector<std::string> order;
  for (const ComparedDeviceOutput& device : fitting) {
    auto& names = devices[device.limited_by];
    if (names.empty()) order.push_back(device.limited_by);
    names.push_back(ShortName(device.device));
  }
  std::string text;
  for (const std::string& limit : order) {
    std::string word = limit.empty() ? "nothing known" : limit;
    if (limit == "budget") word = "the end of the search";
    text += (text.empty() ? "" : "; ") + word;
    if (order.size() > 1) text += ": " + JoinWords(devices[limit], "and");
  }
  return text;
}

void PrintChoice(Terminal& terminal, const CompareOutput& output,
                 const std::vector<ComparedDeviceOutput>& fitting) {
  const ComparedDeviceOutput& fastest = Named(output, output.fastest);
  std::string text = ShortName(fastest.device) + " is fastest: " +
                     FormatNumber(fastest.tokens_per_second) + " tok/s" + Lead(fitting, fastest) +
                     ".";
  if (!output.cheapest.empty()) {
    const ComparedDeviceOutput& cheapest = Named(output, output.cheapest);
    text += " " + ShortName(cheapest.device) + " is cheapest: " +
            Dollars(*cheapest.dollars_per_million_tokens) + " a million tokens.";
  }
  Say(terminal, text);
  Say(terminal, "What limits the best config: " + Limits(fitting) + ".", "  ");
  const std::string& chosen = output.cheapest.empty() ? output.fastest : output.cheapest;
  if (const std::string& why = Named(output, chosen).why; !why.empty()) {
    Say(terminal, ShortName(chosen) + ": " + why + ".", "  ");
  }
}

// What a name says too little of: "mi250x is AMD Instinct MI250X, one GCD".
void PrintParts(Terminal& terminal, const CompareOutput& output) {
  for (const ComparedDeviceOutput& device : output.devices) {
    if (device.product.find(", ") == std::string::npos) continue;
    Say(terminal, ShortName(device.device) + " is " + device.product + ".", "  ");
  }
}

// "PREDICTED (peak −3 %…+5 %)", each once.
std::string Evidences(const std::vector<ComparedDeviceOutput>& fitting) {
  std::vector<std::string> told;
  for (const ComparedDeviceOutput& device : fitting) {
    std::string text = DescribeEvidence(*device.evidence, device.estimate->interval);
    if (std::find(told.begin(), told.end(), text) == told.end()) told.push_back(text);
  }
  return JoinWords(told, "and");
}

}  // namespace

std::string ShortName(const std::string& device) {
  constexpr std::string_view kModel = "model:";
  return device.starts_with(kModel) ? device.substr(kModel.size()) : device;
}

void Rank(CompareOutput& output) {
  double best = 0;
  for (ComparedDeviceOutput& device : output.devices) {
    best = std::max(best, device.tokens_per_second);
    if (!device.dollars_per_hour || device.tokens_per_second <= 0) continue;
    const double tokens_per_hour = 3600 * device.tokens_per_second;
    device.dollars_per_million_tokens = 1e6 * *device.dollars_per_hour *
                                        static_cast<double>(output.workload.world_size) /
                                        tokens_per_hour;
  }
  std::sort(output.devices.begin(), output.devices.end(), IsBefore);
  for (ComparedDeviceOutput& device : output.devices) {
    if (!device.train_config) continue;
    device.relative_ratio = best > 0 ? device.tokens_per_second / best : 0;
    if (output.fastest.empty() && device.tokens_per_second == best) output.fastest = device.device;
    if (output.cheapest.empty() && IsPriced(device)) output.cheapest = device.device;
  }
}

void PrintComparison(Terminal& terminal, const CompareOutput& output) {
  Say(terminal, DescribeWorkload(output.workload), "  ");
  const std::vector<ComparedDeviceOutput> fitting = Fitting(output);
  if (!fitting.empty()) PrintFitting(terminal, output, fitting);
  if (fitting.size() < output.devices.size()) terminal.Print("");
  PrintOthers(terminal, output);
  terminal.Print("");
  if (!output.complete) Say(terminal, "Interrupted: this is what had been tried.");
  if (!fitting.empty()) PrintChoice(terminal, output, fitting);
  PrintParts(terminal, output);
  if (fitting.empty()) {
    Say(terminal, "All is modelled: nothing ran on a GPU.");
  } else {
    Say(terminal,
        "Evidence " + Evidences(fitting) + ": all is modelled, nothing ran on a GPU.");
  }
}

}  // namespace hbmtune::client

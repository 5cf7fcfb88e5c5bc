#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "client/connection.h"
#include "client/interrupt.h"
#include "client/model_file.h"
#include "client/output.h"
#include "client/request_flags.h"
#include "client/sweep_output.h"
#include "client/sweep_report.h"
#include "client/text.h"
#include "client/verbs.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

constexpr const char* kFooter =
    "examples\n"
    "  hbmtune sweep --local --model llama2-7b --device model:mi210 \\\n"
    "      --framework hf-sdpa --precision bf16 \\\n"
    "      --grid micro-batch=1..16 --grid checkpoint.every=0,1\n"
    "  hbmtune sweep --model llama2-13b --device model:mi210 \\\n"
    "      --framework hf-sdpa+deepspeed --output csv > front.csv\n"
    "\n"
    "With --grid, tunables that are not named keep the framework's default; without,\n"
    "the whole space within what is pinned is estimated. Ctrl-C shows what there is.\n"
    "Exit code 3 when nothing fits.";

struct SweepFlags {
  WorkloadFlags workload;
  CeilingFlags ceiling;
  PinFlags pinned;
  ConnectionFlags connection;
  std::vector<std::string> grid;
  std::string format = "table";
  bool all = false;

  void AddTo(CLI::App& app);
};

void SweepFlags::AddTo(CLI::App& app) {
  workload.AddTo(app);
  ceiling.AddTo(app);
  app.add_option("--grid", grid,
                 "values of a tunable: a list (1,2,4), whole numbers from to (0..8), or both; "
                 "may be repeated, all are combined")
      ->type_name("FIELD=VALUES")
      ->allow_extra_args(false)
      ->take_all()
      ->group("what is swept");
  AddChoice(app, "--output", {"table", "json", "csv"},
            "a table for people, JSON, or CSV with every field [table]", format)
      ->group("output");
  app.add_flag("--all", all, "every estimate as it comes, not only the front (csv)")
      ->group("output");
  connection.AddTo(app);
  pinned.AddTo(app);
}

constexpr uint64_t kMostValues = 100'000;

// "0..8" as its two ends.
std::optional<std::pair<int64_t, int64_t>> ParseRange(const std::string& part) {
  const size_t dots = part.find("..");
  int64_t from = 0, to = 0;
  const char* text = part.c_str();
  const auto first = std::from_chars(text, text + dots, from);
  const auto last = std::from_chars(text + dots + 2, text + part.size(), to);
  const bool whole = first.ec == std::errc() && first.ptr == text + dots &&
                     last.ec == std::errc() && last.ptr == text + part.size();
  if (!whole || to < from) return std::nullopt;
  return std::pair(from, to);
}

// "0..8" spelt out, added to `list`.
absl::Status SpellRange(const std::string& part, std::string& list) {
  const auto range = ParseRange(part);
  if (!range) {
    return absl::InvalidArgumentError("--grid: '" + part +
                                      "' is no range of whole numbers, like 0..8");
  }
  // Both ends may be as far apart as 2^64: unsigned arithmetic has that difference exactly.
  const uint64_t more = static_cast<uint64_t>(range->second) - static_cast<uint64_t>(range->first);
  if (more >= kMostValues) {
    return absl::InvalidArgumentError("--grid: '" + part + "' is over " +
                                      FormatCount(int64_t{kMostValues}) +
                                      " values, the most that one tunable may take");
  }
  for (uint64_t i = 0; i <= more; ++i) {
    list += (list.empty() ? "" : ",") + std::to_string(range->first + static_cast<int64_t>(i));
  }
  return absl::OkStatus();
}

// "checkpoint.every=0..2,8" → "checkpoint.every=0,1,2,8".
absl::StatusOr<std::string> SpellGrid(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return absl::InvalidArgumentError("--grid: '" + text + "' is not FIELD=VALUES, like "
                                      "micro-batch=1..16");
  }
  std::string list;
  for (size_t begin = equals + 1; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (part.find("..") == std::string::npos) {
      list += (list.empty() ? "" : ",") + part;
    } else if (absl::Status status = SpellRange(part, list); !status.ok()) {
      return status;
    }
    begin = end + 1;
  }
  return text.substr(0, equals + 1) + list;
}

absl::StatusOr<std::map<std::string, std::string>> Pins(const SweepFlags& flags,
                                                        Framework framework) {
  PinFlags pinned = flags.pinned;
  for (const std::string& text : flags.grid) {
    auto spelt = SpellGrid(text);
    if (!spelt.ok()) return spelt.status();
    pinned.grid.push_back(*spelt);
  }
  auto pins = pinned.Pins(framework);
  if (!pins.ok() || flags.grid.empty()) return pins;
  for (const auto& [path, text] : *pins) {
    if (text.find(':') == std::string::npos) continue;
    return absl::InvalidArgumentError(FlagName(path) + " " + text +
                                      ": beside --grid a tunable takes values, not a range");
  }
  return pins;
}

absl::StatusOr<v1::SweepRequest> MakeRequest(const SweepFlags& flags) {
  v1::SweepRequest request;
  if (flags.all && flags.format != "csv") {
    return absl::InvalidArgumentError("--all: every estimate is told as CSV only: add "
                                      "--output csv");
  }
  auto model = ReadModel(flags.workload.model);
  if (!model.ok()) return model.status();
  *request.mutable_model() = *std::move(model);
  auto workload = flags.workload.Apply(Workload{});
  if (!workload.ok()) return workload.status();
  ToProto(*workload, *request.mutable_workload());
  request.mutable_workload()->clear_model();
  request.set_device(flags.workload.device.empty() ? "host" : flags.workload.device);
  absl::Status status = flags.ceiling.Apply(*request.mutable_ceiling());
  if (!status.ok()) return status;
  auto pins = Pins(flags, workload->framework);
  if (!pins.ok()) return pins.status();
  auto& target = flags.grid.empty() ? *request.mutable_pins() : *request.mutable_grid();
  for (const auto& [path, text] : *pins) target[path] = text;
  request.set_every(flags.all);
  return request;
}

// What an event adds to what is known.
void Take(const v1::SweepEvent& event, SweepOutput& sweep) {
  if (event.has_workload()) sweep.workload = FromProto<Workload>(event.workload());
  sweep.total = event.total();
  sweep.estimated = event.estimated();
  sweep.fitting = event.fitting();
  sweep.refused = event.refused();
  sweep.refusal = event.refusal();
  sweep.elapsed_seconds = event.elapsed_seconds();
  sweep.least.reset();
  if (event.has_least()) sweep.least = FromProto<SweptConfigOutput>(event.least());
  if (!event.front_changed()) return;
  sweep.front.clear();
  for (const v1::SweptConfig& swept : event.front()) {
    sweep.front.push_back(FromProto<SweptConfigOutput>(swept));
  }
}

// Reads the stream to its end, or to an interruption.
absl::Status Follow(const Connection& connection, const v1::SweepRequest& request,
                    SweepOutput& sweep) {
  grpc::ClientContext context;
  auto reader = connection.tuning().Sweep(&context, request);
  Terminal progress(stderr);
  v1::SweepEvent event;
  while (reader->Read(&event)) {
    Take(event, sweep);
    progress.Live(SweepLine(sweep));
    for (const v1::SweptConfig& swept : event.estimates()) {
      WriteOut(stdout, CsvRow(FromProto<SweptConfigOutput>(swept)));
    }
    if (Interrupted()) context.TryCancel();
  }
  progress.ClearLive();
  const grpc::Status status = reader->Finish();
  sweep.complete = status.ok();
  if (Interrupted()) return absl::OkStatus();
  return FromGrpc(status);
}

void Print(const SweepFlags& flags, const SweepOutput& sweep) {
  if (flags.format == "json") return PrintJson(ToJson(sweep));
  if (flags.format == "csv") {
    if (flags.all) return;  // told already
    std::string text = CsvTitles();
    for (const SweptConfigOutput& swept : sweep.front) text += CsvRow(swept);
    return WriteOut(stdout, text);
  }
  Terminal terminal(stdout);
  PrintSweep(terminal, sweep);
}

absl::StatusOr<ExitCode> RunSweep(const SweepFlags& flags) {
  auto request = MakeRequest(flags);
  if (!request.ok()) return request.status();
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  NoteFirstInterrupt();
  if (flags.all) WriteOut(stdout, CsvTitles());
  SweepOutput sweep;
  sweep.device = request->device();
  sweep.host_ceiling_bytes = request->ceiling().host_bytes();
  absl::Status status = Follow(**connection, *request, sweep);
  if (!status.ok()) return status;
  if (sweep.complete && sweep.estimated == 0) {
    return absl::InvalidArgumentError("no config of the grid can be estimated: " + sweep.refusal);
  }
  Print(flags, sweep);
  if (!sweep.complete) return kInterrupted;
  return sweep.front.empty() ? kNothingFits : kDone;
}

}  // namespace

void AddSweep(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "sweep", "estimate a whole grid, or the whole space, and show the Pareto front");
  verb->footer(kFooter);
  auto flags = std::make_shared<SweepFlags>();
  flags->AddTo(*verb);
  verb->callback([flags, &invocation] { invocation.run = [flags] { return RunSweep(*flags); }; });
}

}  // namespace hbmtune::client

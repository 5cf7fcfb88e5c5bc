#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "client/connection.h"
#include "client/device_lines.h"
#include "client/flags.h"
#include "client/interrupt.h"
#include "client/output.h"
#include "client/output_json.h"
#include "client/progress.h"
#include "client/screen.h"
#include "client/table.h"
#include "client/text.h"
#include "client/verbs.h"
#include "kernels/core/units.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

constexpr int kStudies = 20;
constexpr int kFindings = 8;
constexpr size_t kMostProse = 80;

struct TopFlags {
  ConnectionFlags connection;
  OutputFlag output;
  double every = 1;
  int64_t count = 0;
};

// What one look at the daemon shows.
struct Node {
  v1::ListDevicesResponse devices;
  v1::ListStudiesResponse studies;
  v1::ListFindingsResponse findings;
};

absl::StatusOr<Node> Look(const Connection& connection) {
  auto devices = Call(connection.devices(), &v1::Devices::StubInterface::ListDevices,
                      v1::ListDevicesRequest());
  if (!devices.ok()) return devices.status();
  v1::ListStudiesRequest newest;
  newest.set_page_size(kStudies);
  auto studies = Call(connection.tuning(), &v1::Tuning::StubInterface::ListStudies, newest);
  if (!studies.ok()) return studies.status();
  v1::ListFindingsRequest last;
  last.set_page_size(kFindings);
  auto findings = Call(connection.devices(), &v1::Devices::StubInterface::ListFindings, last);
  if (!findings.ok()) return findings.status();
  return Node{*std::move(devices), *std::move(studies), *std::move(findings)};
}

// Modelled devices are always there: shown while one is used.
bool IsShown(const v1::Device& device) {
  return device.kind() != v1::DEVICE_KIND_MODEL || device.state() != v1::DEVICE_STATE_IDLE;
}

std::string Holder(const v1::Device& device) {
  if (!device.leased_by().empty()) return "job " + device.leased_by();
  if (!device.running_study().empty()) return "study " + NumberOf(device.running_study());
  return "";
}

void Append(const Table& table, size_t columns, std::vector<std::string>& lines) {
  if (table.empty()) return;
  if (!lines.empty()) lines.push_back("");
  for (std::string& line : table.Lines(columns)) lines.push_back(std::move(line));
}

void AddDeviceLines(const Node& node, size_t columns, std::vector<std::string>& lines) {
  Table devices({{"device"}, {"used", Align::kRight}, {"memory", Align::kRight},
                 {"", Align::kRight}, {"state"}, {"held by"}, {"waiting", Align::kRight}});
  Table processes({{"process", Align::kRight}, {"program"}, {"device"},
                   {"memory", Align::kRight}});
  for (const v1::Device& device : node.devices.devices()) {
    if (!IsShown(device)) continue;
    const bool known = device.has_used_bytes();
    devices.Add({device.name(), known ? FormatBytes(device.used_bytes()) : "",
                 FormatBytes(device.memory_bytes()),
                 known ? FormatShare(static_cast<double>(device.used_bytes()),
                                     static_cast<double>(device.memory_bytes()))
                       : "",
                 StateName(device.state()), Holder(device),
                 device.queued_studies() > 0 ? std::to_string(device.queued_studies()) : ""});
    for (const v1::DeviceProcess& process : device.processes()) {
      processes.Add({std::to_string(process.pid()), process.program(), device.name(),
                     FormatBytes(process.memory_bytes())});
    }
  }
  Append(devices, columns, lines);
  for (std::string& line : DirtyLines(node.devices, std::min(columns, kMostProse))) {
    lines.push_back(std::move(line));
  }
  Append(processes, columns, lines);
}

void AddStudyLines(const Node& node, size_t columns, std::vector<std::string>& lines) {
  Table table({{"study", Align::kRight}, {"model"}, {"device"}, {"state"},
               {"trials", Align::kRight}, {"best tok/s", Align::kRight}, {"now"}});
  for (const v1::Study& study : node.studies.studies()) {
    if (HasEnded(study)) continue;
    const v1::Progress& progress = study.progress();
    const double best = progress.best_tokens_per_second();
    table.Add({NumberOf(study.name()), study.workload().model().name(), study.device(),
               StateName(study.state()), std::to_string(progress.finished_trials()),
               best > 0 ? FormatNumber(best) : "",
               study.message().empty() ? progress.trying() : study.message()});
  }
  Append(table, columns, lines);
}

std::vector<std::string> LinesOf(const Node& node, size_t columns) {
  std::vector<std::string> lines;
  AddDeviceLines(node, columns, lines);
  AddStudyLines(node, columns, lines);
  Table findings({{"finding of job"}, {"device"}, {"what"}});
  for (const v1::StoredFinding& found : node.findings.findings()) {
    findings.Add({found.job_id(), found.device(), found.finding().message()});
  }
  Append(findings, columns, lines);
  return lines;
}

Json JsonOf(const Node& node) {
  Json json = {{"devices", Json::array()}, {"studies", Json::array()},
               {"findings", Json::array()}};
  for (const v1::Device& device : node.devices.devices()) {
    Json told = ToJson(ToOutput(device));
    if (device.has_used_bytes()) told["used_bytes"] = device.used_bytes();
    told["processes"] = Json::array();
    for (const v1::DeviceProcess& process : device.processes()) {
      told["processes"].push_back({{"pid", process.pid()},
                                   {"program", process.program()},
                                   {"memory_bytes", process.memory_bytes()}});
    }
    json["devices"].push_back(std::move(told));
  }
  for (const v1::Study& study : node.studies.studies()) {
    json["studies"].push_back(ToJson(ToOutput(study)));
  }
  for (const v1::StoredFinding& found : node.findings.findings()) {
    json["findings"].push_back({{"job_id", found.job_id()},
                                {"device", found.device()},
                                {"step", found.finding().step()},
                                {"message", found.finding().message()},
                                {"advice", found.finding().advice()}});
  }
  return json;
}

// False when it was interrupted meanwhile.
bool SleepFor(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (!Interrupted() && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return !Interrupted();
}

absl::StatusOr<ExitCode> RunTop(const TopFlags& flags) {
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  NoteFirstInterrupt();
  std::unique_ptr<Screen> screen;
  for (int64_t looks = 0; flags.count == 0 || looks < flags.count; ++looks) {
    if (looks > 0 && !SleepFor(flags.every)) return kInterrupted;
    auto node = Look(**connection);
    if (!node.ok()) return node.status();
    if (flags.output.json()) {
      WriteOut(stdout, JsonOf(*node).dump() + "\n");
    } else {
      if (screen == nullptr) screen = std::make_unique<Screen>();
      screen->Draw(LinesOf(*node, screen->columns()));
    }
    if (absl::Status status = OutputStatus(); !status.ok()) return status;
  }
  return kDone;
}

}  // namespace

void AddTop(CLI::App& app, Invocation& invocation) {
  CLI::App* verb =
      app.add_subcommand("top", "devices, processes, studies and findings, drawn anew each second");
  verb->footer(
      "examples\n  hbmtune top\n  hbmtune top --count 1 --output json\n\n"
      "Plain lines where output is no terminal, a line of JSON each time with\n"
      "--output json. Ctrl-C leaves.");
  auto flags = std::make_shared<TopFlags>();
  AddNumber(*verb, "--every", "seconds between two looks [1]", flags->every, 0.1, 3600)
      ->group("what");
  AddNumber(*verb, "--count", "looks before it ends; 0: until Ctrl-C [0]", flags->count, 0)
      ->group("what");
  flags->output.AddTo(*verb);
  flags->connection.AddTo(*verb);
  verb->callback([flags, &invocation] { invocation.run = [flags] { return RunTop(*flags); }; });
}

}  // namespace hbmtune::client

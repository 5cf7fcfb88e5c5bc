#include <algorithm>
#include <memory>

#include "client/connection.h"
#include "client/device_lines.h"
#include "client/output.h"
#include "client/output_json.h"
#include "client/progress.h"
#include "client/screen.h"
#include "client/table.h"
#include "client/terminal.h"
#include "client/verbs.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

constexpr size_t kProseColumns = 100;

struct DevicesFlags {
  ConnectionFlags connection;
  OutputFlag output;
  bool names = false;
};

std::string Use(const v1::Device& device) {
  std::string text = StateName(device.state());
  if (!device.leased_by().empty()) text += ", job " + Harmless(device.leased_by());
  if (!device.running_study().empty()) text += ", study " + NumberOf(device.running_study());
  if (device.queued_studies() > 0) {
    text += ", " + std::to_string(device.queued_studies()) + " waiting";
  }
  return text;
}

void PrintTable(const v1::ListDevicesResponse& response) {
  Table table({{"device"}, {"memory", Align::kRight}, {"state"}, {"product"}});
  for (const v1::Device& device : response.devices()) {
    table.Add({device.name(), FormatBytes(device.memory_bytes()), Use(device), device.product()});
  }
  Terminal terminal(stdout);
  for (const std::string& line : table.Lines()) terminal.Print(line);
  const size_t columns = std::min(terminal.columns(), kProseColumns);
  const std::vector<std::string> dirty = DirtyLines(response, columns);
  if (!dirty.empty()) terminal.Print("");
  for (const std::string& line : dirty) terminal.Print(line);
}

// For a shell's completion: aliases too, for people type those.
void PrintNames(const v1::ListDevicesResponse& response) {
  std::string text;
  for (const v1::Device& device : response.devices()) {
    text += Harmless(device.name()) + "\n";
    for (const std::string& alias : device.aliases()) text += Harmless(alias) + "\n";
  }
  WriteOut(stdout, text);
}

absl::StatusOr<ExitCode> RunDevices(const DevicesFlags& flags) {
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  auto response = Call((*connection)->devices(), &v1::Devices::StubInterface::ListDevices,
                       v1::ListDevicesRequest());
  if (!response.ok()) return response.status();
  if (flags.names) {
    PrintNames(*response);
    return kDone;
  }
  if (!flags.output.json()) {
    PrintTable(*response);
    return kDone;
  }
  Json json = Json::array();
  for (const v1::Device& device : response->devices()) json.push_back(ToJson(ToOutput(device)));
  PrintJson(json);
  return kDone;
}

}  // namespace

void AddDevices(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("devices", "list where studies can run");
  verb->footer("examples\n  hbmtune devices --local\n  hbmtune devices --output json");
  auto flags = std::make_shared<DevicesFlags>();
  flags->output.AddTo(*verb);
  verb->add_flag("--names", flags->names, "only names and aliases, one a line")->group("output");
  flags->connection.AddTo(*verb);
  verb->callback(
      [flags, &invocation] { invocation.run = [flags] { return RunDevices(*flags); }; });
}

}  // namespace hbmtune::client

#include <chrono>
#include <memory>
#include <thread>

#include "client/connection.h"
#include "client/output.h"
#include "client/output_json.h"
#include "client/verbs.h"

namespace hbmtune::client {
namespace {

// A probe that has to end is killed after some seconds; one that a kill does not end is given up.
constexpr std::chrono::seconds kMostDraining{60};

struct QuiesceFlags {
  std::vector<std::string> devices;
  ConnectionFlags connection;
  OutputFlag output;

  void AddTo(CLI::App& app) {
    AddDeviceNames(app, devices);
    output.AddTo(app);
    connection.AddTo(app);
  }
};

absl::StatusOr<std::vector<v1::Device>> Look(const Connection& connection,
                                             const std::vector<std::string>& names) {
  std::vector<v1::Device> devices;
  for (const std::string& name : names) {
    v1::GetDeviceRequest request;
    request.set_name(name);
    auto device = Call(connection.devices(), &v1::Devices::StubInterface::GetDevice, request);
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
  }
  return devices;
}

// Until no probe runs on them.
absl::StatusOr<std::vector<v1::Device>> AwaitProbes(const Connection& connection,
                                                    const std::vector<std::string>& names) {
  const auto deadline = std::chrono::steady_clock::now() + kMostDraining;
  for (;;) {
    auto devices = Look(connection, names);
    if (!devices.ok()) return devices.status();
    const v1::Device* probed = nullptr;
    for (const v1::Device& device : *devices) {
      if (device.state() == v1::DEVICE_STATE_PROBING) probed = &device;
    }
    if (probed == nullptr) return devices;
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::InternalError("a probe on " + probed->name() +
                                 " has not ended within 60 s; no other one starts there");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void Print(const QuiesceFlags& flags, const std::vector<v1::Device>& devices) {
  Json json = Json::array();
  std::string text;
  for (const v1::Device& device : devices) {
    json.push_back(ToJson(ToOutput(device)));
    text += device.name() + ": " + StateName(device.state()) + "\n";
  }
  if (flags.output.json()) return PrintJson(json);
  WriteOut(stdout, text);
}

// `call` is Quiesce or Resume; `look` gives the devices when it has had its effect.
template <class Request, class Response>
absl::StatusOr<ExitCode> Run(const QuiesceFlags& flags,
                             grpc::Status (v1::Devices::StubInterface::*call)(
                                 grpc::ClientContext*, const Request&, Response*),
                             decltype(Look)& look) {
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  Request request;
  request.mutable_devices()->Add(flags.devices.begin(), flags.devices.end());
  auto answer = Call((*connection)->devices(), call, request);
  if (!answer.ok()) return answer.status();
  auto devices = look(**connection, flags.devices);
  if (!devices.ok()) return devices.status();
  Print(flags, *devices);
  return kDone;
}

}  // namespace

void AddQuiesce(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "quiesce", "set devices aside, for a driver reload or repartitioning (admins)");
  verb->footer(
      "examples\n  hbmtune quiesce hip:0 && modprobe -r amdgpu\n\n"
      "Returns when no probe runs there any more; none starts until hbmtune resume.");
  auto flags = std::make_shared<QuiesceFlags>();
  flags->AddTo(*verb);
  verb->callback([flags, &invocation] {
    invocation.run = [flags] {
      return Run(*flags, &v1::Devices::StubInterface::Quiesce, AwaitProbes);
    };
  });
}

void AddResume(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "resume", "take quiesced devices back into use, or call a dirty one clean (admins)");
  verb->footer(
      "examples\n  hbmtune resume hip:0\n\n"
      "Of a dirty device, what is used now counts as free of probes from then on.");
  auto flags = std::make_shared<QuiesceFlags>();
  flags->AddTo(*verb);
  verb->callback([flags, &invocation] {
    invocation.run = [flags] { return Run(*flags, &v1::Devices::StubInterface::Resume, Look); };
  });
}

}  // namespace hbmtune::client

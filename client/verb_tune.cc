#include <fstream>
#include <memory>

#include "client/conclude.h"
#include "client/connection.h"
#include "client/follow.h"
#include "client/interrupt.h"
#include "client/job.h"
#include "client/model_file.h"
#include "client/output_json.h"
#include "client/progress.h"
#include "client/report.h"
#include "client/request_flags.h"
#include "client/verbs.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

constexpr const char* kFooter =
    "examples\n"
    "  hbmtune tune --local --model llama2-13b --seq-len 2048 \\\n"
    "      --device model:mi210 --framework hf-sdpa+deepspeed\n"
    "  hbmtune tune --model ./config.json --seq-len 256 --device host \\\n"
    "      --memory 1GiB --budget 60s\n"
    "  hbmtune tune --model llama3-8b --device model:mi300x --pin zero.stage=2 \\\n"
    "      --pin offload=none --precision bf16-amp --output json\n"
    "\n"
    "Ctrl-C cancels the study; its finished trials stay. Ctrl-C again leaves at once.";

constexpr double kUsualBudgetSeconds = 300;
constexpr int64_t kMostSeed = int64_t{1} << 53;

struct TuneFlags {
  WorkloadFlags workload;
  CeilingFlags ceiling;
  JobFlag job;
  PinFlags pinned;
  ConnectionFlags connection;
  OutputFlag output;
  std::string budget;
  std::string designer = "bracket";
  int64_t max_trials = 0;
  int64_t seed = 0;
  bool detach = false;

  void AddTo(CLI::App& app);
};

void TuneFlags::AddTo(CLI::App& app) {
  workload.AddTo(app);
  ceiling.AddTo(app);
  job.AddTo(app, "the scheduler's job in whose lease a GPU is probed (see hbmtune lease)",
            "on what");
  const std::string group = "how it is searched";
  app.add_option("--budget", budget,
                 "time for probing [5m; no limit on a modelled device, which takes seconds]")
      ->type_name("TIME")
      ->group(group);
  AddNumber(app, "--max-trials", "most trials, 0 for no limit [0]", max_trials, 0)->group(group);
  AddChoice(app, "--designer", {"bracket", "grid", "random"}, "how trials are chosen [bracket]",
            designer)
      ->group(group);
  AddNumber(app, "--seed", "decides every random choice [0]", seed, -kMostSeed)->group(group);
  app.add_flag("--detach", detach, "leave the study running; see hbmtune watch")->group(group);
  output.AddTo(app);
  connection.AddTo(app);
  pinned.AddTo(app);
}

// Names the request, so that one that is sent twice makes one study.
std::string RandomUuid() {
  std::ifstream file("/proc/sys/kernel/random/uuid");
  std::string uuid;
  std::getline(file, uuid);
  return uuid;
}

absl::StatusOr<v1::CreateStudyRequest> MakeRequest(const TuneFlags& flags) {
  v1::CreateStudyRequest request;
  request.set_client_request_id(RandomUuid());
  auto model = ReadModel(flags.workload.model);
  if (!model.ok()) return model.status();
  *request.mutable_model() = *std::move(model);
  auto workload = flags.workload.Apply(Workload{});
  if (!workload.ok()) return workload.status();
  ToProto(*workload, *request.mutable_workload());
  request.mutable_workload()->clear_model();
  const std::string& device = flags.workload.device;
  request.set_device(device.empty() ? "host" : device);
  request.set_job_id(flags.job.OrEnvironment());
  absl::Status status = flags.ceiling.Apply(*request.mutable_ceiling());
  if (!status.ok()) return status;
  if (!request.device().starts_with("model:")) request.set_budget_seconds(kUsualBudgetSeconds);
  if (!flags.budget.empty()) {
    auto seconds = ParseBudget(flags.budget);
    if (!seconds.ok()) return seconds.status();
    request.set_budget_seconds(*seconds);
  }
  request.set_max_trials(flags.max_trials);
  request.set_designer(flags.designer);
  request.set_seed(flags.seed);
  request.set_detached(flags.detach);
  auto pins = flags.pinned.Pins(workload->framework);
  if (!pins.ok()) return pins.status();
  request.mutable_pins()->insert(pins->begin(), pins->end());
  return request;
}

void Announce(const Connection& connection, const v1::Study& study, Terminal& terminal) {
  v1::GetDeviceRequest request;
  request.set_name(study.device());
  auto device = Call(connection.devices(), &v1::Devices::StubInterface::GetDevice, request);
  if (device.ok()) PrintHeader(terminal, study, *device);
}

ExitCode Detach(const TuneFlags& flags, const v1::Study& study, Terminal& terminal) {
  if (flags.output.json()) {
    PrintJson(ToJson(ToOutput(study)));
  } else {
    terminal.PrintCommand("it goes on without us: hbmtune watch " + NumberOf(study.name()) +
                          flags.connection.Words());
  }
  return kDone;
}

absl::StatusOr<ExitCode> RunTune(const TuneFlags& flags) {
  auto request = MakeRequest(flags);
  if (!request.ok()) return request.status();
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  // From here on there may be a study to cancel.
  NoteTwoInterrupts();
  auto study = Call((*connection)->tuning(), &v1::Tuning::StubInterface::CreateStudy, *request);
  if (!study.ok()) return study.status();

  bool json = flags.output.json();
  Terminal terminal(json ? stderr : stdout);
  if (!json) Announce(**connection, *study, terminal);
  if (flags.detach) return Detach(flags, *study, terminal);
  ProgressView view(terminal,
                    json ? ProgressView::Plain::kNothing : ProgressView::Plain::kLines);
  study = FollowStudy(**connection, study->name(), OnInterrupt::kCancelStudy, view);
  if (!study.ok()) return study.status();
  view.OnStudy(*study, ProgressView::Clock::now());
  view.Finish();
  return Conclude(**connection, *study, flags.connection.Words(), json, terminal);
}

}  // namespace

void AddTune(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("tune", "search the best train config for a workload");
  verb->footer(kFooter);
  auto flags = std::make_shared<TuneFlags>();
  flags->AddTo(*verb);
  verb->callback([flags, &invocation] { invocation.run = [flags] { return RunTune(*flags); }; });
}

}  // namespace hbmtune::client

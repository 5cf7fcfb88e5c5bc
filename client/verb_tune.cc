#include <memory>

#include "client/conclude.h"
#include "client/connection.h"
#include "client/follow.h"
#include "client/interrupt.h"
#include "client/job.h"
#include "client/output_json.h"
#include "client/progress.h"
#include "client/report.h"
#include "client/study_flags.h"
#include "client/verbs.h"

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

struct TuneFlags {
  StudyFlags study;
  JobFlag job;
  ConnectionFlags connection;
  OutputFlag output;
  bool detach = false;

  void AddTo(CLI::App& app);
};

void TuneFlags::AddTo(CLI::App& app) {
  study.workload.AddTo(app);
  study.ceiling.AddTo(app);
  job.AddTo(app, "the scheduler's job in whose lease a GPU is probed (see hbmtune lease)",
            "on what");
  study.AddSearchTo(
      app, "time for probing [5m; no limit on a modelled device, which takes seconds]");
  app.add_flag("--detach", detach, "leave the study running; see hbmtune watch")
      ->group(StudyFlags::kSearchGroup);
  output.AddTo(app);
  connection.AddTo(app);
  study.pinned.AddTo(app);
}

absl::StatusOr<v1::CreateStudyRequest> MakeRequest(const TuneFlags& flags) {
  const std::string& device = flags.study.workload.device;
  auto request = flags.study.Request(device.empty() ? "host" : device);
  if (!request.ok()) return request.status();
  request->set_job_id(flags.job.OrEnvironment());
  request->set_detached(flags.detach);
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

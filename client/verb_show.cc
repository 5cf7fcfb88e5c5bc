#include <memory>

#include "client/conclude.h"
#include "client/connection.h"
#include "client/describe.h"
#include "client/output_json.h"
#include "client/progress.h"
#include "client/report.h"
#include "client/table.h"
#include "client/terminal.h"
#include "client/text.h"
#include "client/trials.h"
#include "client/verbs.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

struct ShowFlags {
  std::string study;
  bool why = false;
  ConnectionFlags connection;
  OutputFlag output;
};

std::string OutcomeOf(const TrialOutput& trial) {
  if (trial.state != "finished") return trial.state;
  if (trial.measurement) return std::string(Name(trial.measurement->outcome));
  if (trial.estimate) return trial.estimate->fits ? "fits" : "does not fit";
  return trial.state;
}

void PrintTrials(Terminal& terminal, const ShowOutput& output) {
  Table table({{"trial", Align::kRight}, {"outcome"}, {"tok/s", Align::kRight},
               {"peak", Align::kRight}, {"evidence"}, {"train config"}});
  for (const TrialOutput& trial : output.trials) {
    Figures figures = trial.measurement ? FiguresOf(*trial.measurement)
                      : trial.estimate  ? FiguresOf(*trial.estimate)
                                        : Figures{};
    double speed = figures.tokens_per_second;
    table.Add({NumberOf(trial.trial), OutcomeOf(trial), speed > 0 ? FormatNumber(speed) : "-",
               figures.peak_bytes > 0 ? FormatBytes(figures.peak_bytes) : "-",
               std::string(Name(trial.evidence)),
               DescribeConfigShort(trial.train_config, output.study.workload.framework)});
  }
  for (const std::string& line : table.Lines()) terminal.Print(line);
}

// What happened to the trials that failed, and with --why why each was tried.
void PrintSentences(Terminal& terminal, const ShowOutput& output, bool why) {
  for (const TrialOutput& trial : output.trials) {
    std::string name = "trial " + NumberOf(trial.trial) + ": ";
    bool failed = trial.measurement && trial.measurement->outcome != Outcome::kOk;
    if (why && !trial.why.empty()) terminal.Print(name + trial.why);
    if (failed && !trial.measurement->message.empty()) {
      terminal.Print(name + trial.measurement->message);
    }
  }
}

void Print(const v1::Study& study, const v1::Device& device, const ShowOutput& output,
           bool why) {
  Terminal terminal(stdout);
  PrintHeader(terminal, study, device);
  if (output.study.space.legal > 0) {
    terminal.Print("space    " + DescribeSpace(output.study.space.legal,
                                               output.study.space.settings));
  }
  std::string state = "state    " + output.study.state;
  if (!output.study.message.empty()) state += ": " + output.study.message;
  terminal.Print(state);
  for (const std::string& pin : output.study.pins) terminal.Print("pinned   " + pin);
  if (output.recommendation) PrintRecommendation(terminal, *output.recommendation);
  if (output.trials.empty()) return;
  terminal.Print("");
  PrintTrials(terminal, output);
  PrintSentences(terminal, output, why);
}

absl::StatusOr<ExitCode> RunShow(const ShowFlags& flags) {
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  v1::GetStudyRequest request;
  request.set_name(flags.study);
  auto study = Call((*connection)->tuning(), &v1::Tuning::StubInterface::GetStudy, request);
  if (!study.ok()) return study.status();
  auto trials = ListTrials(**connection, study->name());
  if (!trials.ok()) return trials.status();
  ShowOutput output;
  output.study = ToOutput(*study);
  for (const v1::Trial& trial : *trials) output.trials.push_back(ToOutput(trial));
  auto recommendation = RecommendFor(**connection, study->name());
  if (recommendation.ok()) output.recommendation = ToOutput(*recommendation);
  if (flags.output.json()) {
    PrintJson(ToJson(output));
    return kDone;
  }
  v1::GetDeviceRequest named;
  named.set_name(study->device());
  auto device = Call((*connection)->devices(), &v1::Devices::StubInterface::GetDevice, named);
  if (!device.ok()) return device.status();
  Print(*study, *device, output, flags.why);
  return kDone;
}

}  // namespace

void AddShow(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("show", "show a study: its best, its trials, their outcomes");
  verb->footer("examples\n  hbmtune show 7 --why\n  hbmtune show 7 --output json");
  auto flags = std::make_shared<ShowFlags>();
  AddStudy(*verb, flags->study);
  verb->add_flag("--why", flags->why, "say why each trial was tried")->group("output");
  flags->output.AddTo(*verb);
  flags->connection.AddTo(*verb);
  verb->callback([flags, &invocation] { invocation.run = [flags] { return RunShow(*flags); }; });
}

}  // namespace hbmtune::client

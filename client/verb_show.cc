#include <memory>
#include <set>

#include "client/conclude.h"
#include "client/config_differences.h"
#include "client/connection.h"
#include "client/describe.h"
#include "client/output_json.h"
#include "client/progress.h"
#include "client/prose.h"
#include "client/report.h"
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

// A probe that was gone before its first step measured nothing.
std::string EvidenceOf(const TrialOutput& trial) {
  const bool nothing = trial.measurement && FiguresOf(*trial.measurement).peak_bytes == 0 &&
                       trial.measurement->steps == 0;
  return nothing ? "–" : std::string(Name(trial.evidence));
}

// What all trials have in common stands above the table, once.
void PrintTrials(Terminal& terminal, const ShowOutput& output) {
  std::vector<TrainConfig> configs;
  std::set<std::string> evidences;
  for (const TrialOutput& trial : output.trials) {
    configs.push_back(trial.train_config);
    evidences.insert(EvidenceOf(trial));
  }
  const ConfigsApart apart = DescribeApart(configs, output.study.workload.framework);
  const bool several = configs.size() > 1;
  const bool mixed = evidences.size() > 1;
  if (several) {
    const std::string evidence = mixed || *evidences.begin() == "–" ? "" : *evidences.begin();
    const bool both = !evidence.empty() && !apart.common.empty();
    PrintProse(terminal, evidence + (both ? ", " : "") + apart.common, "all trials: ", "  ");
  }
  std::vector<Column> columns = {{"trial", Align::kRight}, {"outcome"}, {"tok/s", Align::kRight},
                                 {"peak", Align::kRight}};
  if (mixed || !several) columns.push_back({"evidence"});
  columns.push_back({several ? "differs in" : "train config"});
  Table table(columns);
  for (size_t i = 0; i < configs.size(); ++i) {
    const TrialOutput& trial = output.trials[i];
    Figures figures = trial.measurement ? FiguresOf(*trial.measurement)
                      : trial.estimate  ? FiguresOf(*trial.estimate)
                                        : Figures{};
    double speed = figures.tokens_per_second;
    std::vector<std::string> cells = {
        NumberOf(trial.trial), OutcomeOf(trial), speed > 0 ? FormatNumber(speed) : "-",
        figures.peak_bytes > 0 ? FormatBytes(figures.peak_bytes) : "-"};
    if (mixed || !several) cells.push_back(EvidenceOf(trial));
    cells.push_back(several ? apart.own[i] : apart.common);
    table.Add(cells);
  }
  PrintTable(terminal, table);
}

// What happened to the trials that failed, and with --why why each was tried.
void PrintSentences(Terminal& terminal, const ShowOutput& output, bool why) {
  for (const TrialOutput& trial : output.trials) {
    std::string name = "trial " + NumberOf(trial.trial) + ": ";
    bool failed = trial.measurement && trial.measurement->outcome != Outcome::kOk;
    if (why && !trial.why.empty()) PrintProse(terminal, trial.why, name, "  ", kNoLimit);
    if (failed && !trial.measurement->message.empty()) {
      PrintProse(terminal, trial.measurement->message, name, "  ", kNoLimit);
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
  std::string state = output.study.state;
  if (!output.study.message.empty()) state += ": " + output.study.message;
  PrintProse(terminal, state, "state    ", std::string(9, ' '), kNoLimit);
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

#include <algorithm>
#include <memory>

#include "client/connection.h"
#include "client/flags.h"
#include "client/output.h"
#include "client/output_json.h"
#include "client/progress.h"
#include "client/table.h"
#include "client/terminal.h"
#include "client/text.h"
#include "client/verbs.h"

namespace hbmtune::client {
namespace {

struct StudiesFlags {
  int64_t limit = 20;
  ConnectionFlags connection;
  OutputFlag output;
  bool names = false;
};

// Newest first, at most `limit`.
absl::StatusOr<std::vector<v1::Study>> List(const Connection& connection, int64_t limit) {
  std::vector<v1::Study> studies;
  v1::ListStudiesRequest request;
  do {
    request.set_page_size(static_cast<int32_t>(
        std::min<int64_t>(1000, limit - static_cast<int64_t>(studies.size()))));
    auto page = Call(connection.tuning(), &v1::Tuning::StubInterface::ListStudies, request);
    if (!page.ok()) return page.status();
    studies.insert(studies.end(), page->studies().begin(), page->studies().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty() && static_cast<int64_t>(studies.size()) < limit);
  return studies;
}

void PrintTable(const std::vector<v1::Study>& studies) {
  Terminal terminal(stdout);
  if (studies.empty()) {
    terminal.Print("no studies yet: start one with hbmtune tune");
    return;
  }
  Table table({{"study", Align::kRight}, {"state"}, {"trials", Align::kRight},
               {"best tok/s", Align::kRight}, {"device"}, {"model"}, {"framework"}});
  for (const v1::Study& study : studies) {
    StudyOutput output = ToOutput(study);
    double best = output.progress.best_tokens_per_second;
    table.Add({NumberOf(output.study), output.state,
               std::to_string(output.progress.finished_trials),
               best > 0 ? FormatNumber(best) : "-", output.device, output.workload.model.name,
               std::string(Name(output.workload.framework))});
  }
  for (const std::string& line : table.Lines()) terminal.Print(line);
}

absl::StatusOr<ExitCode> RunStudies(const StudiesFlags& flags) {
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  auto studies = List(**connection, flags.limit);
  if (!studies.ok()) return studies.status();
  if (flags.names) {
    std::string text;
    for (const v1::Study& study : *studies) text += NumberOf(study.name()) + "\n";
    WriteOut(stdout, text);
    return kDone;
  }
  if (!flags.output.json()) {
    PrintTable(*studies);
    return kDone;
  }
  Json json = Json::array();
  for (const v1::Study& study : *studies) json.push_back(ToJson(ToOutput(study)));
  PrintJson(json);
  return kDone;
}

}  // namespace

void AddStudies(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("studies", "list studies, newest first");
  verb->footer("examples\n  hbmtune studies\n  hbmtune studies --limit 100 --output json");
  auto flags = std::make_shared<StudiesFlags>();
  AddNumber(*verb, "--limit", "most studies to list [20]", flags->limit, 1)->group("output");
  flags->output.AddTo(*verb);
  verb->add_flag("--names", flags->names, "only their numbers, one a line")->group("output");
  flags->connection.AddTo(*verb);
  verb->callback(
      [flags, &invocation] { invocation.run = [flags] { return RunStudies(*flags); }; });
}

}  // namespace hbmtune::client

#include <cstdio>
#include <memory>

#include "client/connection.h"
#include "client/output.h"
#include "client/output_json.h"
#include "client/progress.h"
#include "client/verbs.h"

namespace hbmtune::client {
namespace {

struct CancelFlags {
  std::string study;
  ConnectionFlags connection;
  OutputFlag output;
};

absl::StatusOr<ExitCode> RunCancel(const CancelFlags& flags) {
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  v1::CancelStudyRequest request;
  request.set_name(flags.study);
  auto study = Call((*connection)->tuning(), &v1::Tuning::StubInterface::CancelStudy, request);
  if (!study.ok()) return study.status();
  if (flags.output.json()) {
    PrintJson(ToJson(ToOutput(*study)));
  } else {
    WriteOut(stdout, "study " + NumberOf(study->name()) + ": " + StateName(study->state()) + ", " +
                         std::to_string(study->progress().finished_trials()) +
                         " finished trials kept\n");
  }
  return kDone;
}

}  // namespace

void AddCancel(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("cancel", "end a study; its finished trials stay");
  verb->footer("examples\n  hbmtune cancel 7");
  auto flags = std::make_shared<CancelFlags>();
  AddStudy(*verb, flags->study);
  flags->output.AddTo(*verb);
  flags->connection.AddTo(*verb);
  verb->callback([flags, &invocation] { invocation.run = [flags] { return RunCancel(*flags); }; });
}

}  // namespace hbmtune::client

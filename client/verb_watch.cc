#include <memory>

#include "client/conclude.h"
#include "client/connection.h"
#include "client/follow.h"
#include "client/interrupt.h"
#include "client/progress.h"
#include "client/verbs.h"

namespace hbmtune::client {
namespace {

struct WatchFlags {
  std::string study;
  ConnectionFlags connection;
  OutputFlag output;
};

absl::StatusOr<ExitCode> RunWatch(const WatchFlags& flags) {
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  NoteFirstInterrupt();
  bool json = flags.output.json();
  Terminal terminal(json ? stderr : stdout);
  ProgressView view(terminal,
                    json ? ProgressView::Plain::kNothing : ProgressView::Plain::kLines);
  auto study = FollowStudy(**connection, flags.study, OnInterrupt::kLeave, view);
  if (!study.ok()) return study.status();
  view.OnStudy(*study, ProgressView::Clock::now());
  view.Finish();
  return Conclude(**connection, *study, flags.connection.local, json, terminal);
}

}  // namespace

void AddWatch(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("watch", "follow a study to its end");
  verb->footer("examples\n  hbmtune watch 7\n\nCtrl-C leaves; the study goes on.");
  auto flags = std::make_shared<WatchFlags>();
  AddStudy(*verb, flags->study);
  flags->output.AddTo(*verb);
  flags->connection.AddTo(*verb);
  verb->callback([flags, &invocation] { invocation.run = [flags] { return RunWatch(*flags); }; });
}

}  // namespace hbmtune::client

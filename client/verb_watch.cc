#include <memory>

#include "client/conclude.h"
#include "client/connection.h"
#include "client/flags.h"
#include "client/follow.h"
#include "client/interrupt.h"
#include "client/progress.h"
#include "client/request_flags.h"
#include "client/verbs.h"
#include "client/watch_device.h"

namespace hbmtune::client {
namespace {

struct WatchFlags {
  std::string study;
  WatchDeviceOptions device;
  bool csv = false;
  ConnectionFlags connection;
  OutputFlag output;
};

absl::StatusOr<ExitCode> RunWatchDevice(const WatchFlags& flags) {
  if (flags.csv && flags.output.json()) {
    return absl::InvalidArgumentError("--csv and --output json: choose one");
  }
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  WatchDeviceOptions options = flags.device;
  if (flags.csv) options.format = SampleFormat::kCsv;
  if (flags.output.json()) options.format = SampleFormat::kJson;
  return WatchDevice(**connection, options);
}

absl::StatusOr<ExitCode> RunWatch(const WatchFlags& flags) {
  if (flags.study.empty() == flags.device.device.empty()) {
    return absl::InvalidArgumentError("watch needs the number of a study, or --device");
  }
  if (flags.study.empty()) return RunWatchDevice(flags);
  if (flags.csv) return absl::InvalidArgumentError("--csv is for watch --device");
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
  return Conclude(**connection, *study, flags.connection.Words(), json, terminal);
}

}  // namespace

void AddWatch(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("watch", "follow a study to its end, or a device's memory");
  verb->footer(
      "examples\n  hbmtune watch 7\n  hbmtune watch --device hip:0 --csv > memory.csv\n\n"
      "Ctrl-C leaves; the study goes on. With --device and --output json, a line of\n"
      "JSON each time.");
  auto flags = std::make_shared<WatchFlags>();
  verb->add_option("STUDY", flags->study, "number of the study (see hbmtune studies)")
      ->type_name("STUDY")
      ->group("arguments");
  AddDevice(*verb, "a device, in place of a study", flags->device.device)->group("device");
  AddNumber(*verb, "--every", "seconds between two samples [1]", flags->device.period_seconds, 0.1,
            3600)
      ->group("device");
  AddNumber(*verb, "--count", "samples before it ends; 0: until Ctrl-C [0]",
            flags->device.most_samples, 0)
      ->group("device");
  verb->add_flag("--csv", flags->csv, "one line a sample, columns separated by commas")
      ->group("device");
  flags->output.AddTo(*verb);
  flags->connection.AddTo(*verb);
  verb->callback([flags, &invocation] { invocation.run = [flags] { return RunWatch(*flags); }; });
}

}  // namespace hbmtune::client

#pragma once

#include <CLI/App.hpp>
#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <vector>

#include "client/errors.h"

// The verbs of hbmtune, one file each (verb_tune.cc, …).
namespace hbmtune::client {

// What the command line asked for; a verb that was parsed puts its work here.
struct Invocation {
  std::function<absl::StatusOr<ExitCode>()> run;
};

// Each adds its verb to `app`. The verb keeps its own flags, and `invocation` must outlive `app`.
void AddCalibrate(CLI::App& app, Invocation& invocation);
void AddCancel(CLI::App& app, Invocation& invocation);
void AddCompare(CLI::App& app, Invocation& invocation);
void AddCompletion(CLI::App& app, Invocation& invocation);
void AddDevices(CLI::App& app, Invocation& invocation);
void AddEstimate(CLI::App& app, Invocation& invocation);
void AddExport(CLI::App& app, Invocation& invocation);
void AddLadder(CLI::App& app, Invocation& invocation);
void AddLease(CLI::App& app, Invocation& invocation);
void AddQuiesce(CLI::App& app, Invocation& invocation);
void AddRecommend(CLI::App& app, Invocation& invocation);
void AddRelease(CLI::App& app, Invocation& invocation);
void AddResume(CLI::App& app, Invocation& invocation);
void AddSchema(CLI::App& app, Invocation& invocation);
void AddShow(CLI::App& app, Invocation& invocation);
void AddStudies(CLI::App& app, Invocation& invocation);
void AddTop(CLI::App& app, Invocation& invocation);
void AddSweep(CLI::App& app, Invocation& invocation);
void AddTune(CLI::App& app, Invocation& invocation);
void AddVerify(CLI::App& app, Invocation& invocation);
void AddWatch(CLI::App& app, Invocation& invocation);

// --output text|json.
struct OutputFlag {
  std::string format = "text";

  void AddTo(CLI::App& app);
  bool json() const { return format == "json"; }
};

// The positional STUDY: "7" or "studies/7".
void AddStudy(CLI::App& app, std::string& study);

// The positional DEVICE, which may be repeated.
void AddDeviceNames(CLI::App& app, std::vector<std::string>& devices);

}  // namespace hbmtune::client

#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <filesystem>

#include "client/connection.h"
#include "client/flags.h"
#include "client/text.h"
#include "client/verbs.h"
#include "client/verify_output.h"
#include "client/verify_report.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

constexpr const char* kFooter =
    "examples\n"
    "  hbmtune verify tests/data/hf/llama.json\n"
    "  hbmtune verify run.json --run 'batch=4' --output json\n"
    "\n"
    "A recording is what tests/reference/record_hf.py and record_deepspeed.py write.\n"
    "Exit code 0: equal within the tolerance, 1: different, 2: not a recording.\n"
    "Without a daemon a private one is started.";

// A recording of 80 layers has a few MiB; what is larger is something else.
constexpr std::uintmax_t kMostFileBytes = 256 << 20;
constexpr size_t kMostRunBytes = 4'000'000;  // of one call to the daemon

struct VerifyFlags {
  std::string path;
  std::string run;
  double tolerance = 0.01;
  bool events = false;
  ConnectionFlags connection;
  OutputFlag output;
};

absl::StatusOr<Json> ReadFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(error ? "no such file: " + path : path + " is no file");
  }
  if (std::filesystem::file_size(path, error) > kMostFileBytes) {
    return absl::InvalidArgumentError(path + " is over 256 MiB: not a recording");
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return absl::InvalidArgumentError("cannot read " + path);
  Json json = Json::parse(text.str(), nullptr, false);
  if (json.is_discarded()) return absl::InvalidArgumentError(path + " is not JSON");
  return json;
}

// The runs of a recording whose name has the text; a file of one run alone is one too.
absl::StatusOr<std::vector<Json>> ReadRuns(const VerifyFlags& flags) {
  auto json = ReadFile(flags.path);
  if (!json.ok()) return json.status();
  std::vector<Json> runs;
  if (json->is_object() && json->contains("phases")) runs.push_back(*std::move(json));
  else if (json->is_object() && json->contains("runs") && (*json)["runs"].is_array()) {
    for (Json& run : (*json)["runs"]) runs.push_back(std::move(run));
  }
  if (runs.empty()) {
    return absl::InvalidArgumentError(flags.path + " is not a recording: it has no runs");
  }
  std::erase_if(runs, [&](const Json& run) {
    const bool named = run.is_object() && run.contains("name") && run["name"].is_string();
    return !flags.run.empty() && (!named || run["name"].get<std::string>().find(flags.run) ==
                                                std::string::npos);
  });
  if (!runs.empty()) return runs;
  return absl::InvalidArgumentError("no run of " + flags.path + " has '" + flags.run +
                                    "' in its name");
}

absl::StatusOr<RunVerificationOutput> VerifyRun(const Connection& connection, const Json& run,
                                                const VerifyFlags& flags) {
  RunVerificationOutput output;
  v1::VerifyRequest request;
  request.set_recording_json(run.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (run.is_object() && run.contains("name") && run["name"].is_string()) {
    output.name = run["name"].get<std::string>();
  }
  if (request.recording_json().size() > kMostRunBytes) {
    output.refusal = "a run over 4 MB is not compared";
    return output;
  }
  auto answer = Call(connection.tuning(), &v1::Tuning::StubInterface::Verify, request);
  if (absl::IsInvalidArgument(answer.status())) {
    output.refusal = std::string(answer.status().message());
    return output;
  }
  if (!answer.ok()) return answer.status();
  static_cast<Verification&>(output) = FromProto<Verification>(*answer);
  output.equal = output.worst_ratio <= flags.tolerance && (output.same_events || !flags.events);
  return output;
}

// A private daemon does: nothing is asked that a node knows.
absl::StatusOr<std::unique_ptr<Connection>> ConnectAnyhow(ConnectionFlags flags) {
  auto connection = Connect(flags);
  if (!absl::IsUnavailable(connection.status()) || !flags.socket.empty() ||
      !flags.remote.address.empty()) {
    return connection;
  }
  flags.local = true;
  return Connect(flags);
}

absl::StatusOr<ExitCode> RunVerify(const VerifyFlags& flags) {
  auto runs = ReadRuns(flags);
  if (!runs.ok()) return runs.status();
  auto connection = ConnectAnyhow(flags.connection);
  if (!connection.ok()) return connection.status();
  VerifyOutput output;
  output.tolerance_ratio = flags.tolerance;
  output.runs = static_cast<int64_t>(runs->size());
  Terminal progress(stderr);
  for (const Json& run : *runs) {
    progress.Live("run " + FormatCount(static_cast<int64_t>(output.verifications.size()) + 1) +
                  " of " + FormatCount(output.runs));
    auto verified = VerifyRun(**connection, run, flags);
    if (!verified.ok()) return verified.status();
    output.equal_runs += verified->equal;
    output.same_event_runs += verified->same_events;
    output.refused_runs += verified->refusal.has_value();
    output.verifications.push_back(*std::move(verified));
  }
  progress.ClearLive();
  output.equal = output.equal_runs == output.runs;
  if (output.refused_runs == output.runs) {
    return absl::InvalidArgumentError(flags.path + ": " + *output.verifications[0].refusal);
  }
  if (flags.output.json()) {
    PrintJson(ToJson(output));
  } else {
    Terminal terminal(stdout);
    PrintVerification(terminal, output);
  }
  return output.equal ? kDone : kFailed;
}

}  // namespace

void AddVerify(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "verify", "compare a recorded run with its estimate, event by event");
  verb->footer(kFooter);
  auto flags = std::make_shared<VerifyFlags>();
  verb->add_option("RECORDING", flags->path, "the recording")
      ->required()
      ->type_name("PATH")
      ->group("arguments");
  verb->add_option("--run", flags->run, "only runs that have this in their name [all]")
      ->type_name("TEXT")
      ->group("what is compared");
  AddNumber(*verb, "--tolerance",
            "largest difference of a phase's peak, as a share of its activations [0.01]",
            flags->tolerance, 0, 10)
      ->group("what is compared");
  verb->add_flag("--events", flags->events,
                 "the events must be the same too, in the same order")
      ->group("what is compared");
  flags->output.AddTo(*verb);
  flags->connection.AddTo(*verb);
  verb->callback(
      [flags, &invocation] { invocation.run = [flags] { return RunVerify(*flags); }; });
}

}  // namespace hbmtune::client

#include <pwd.h>

#include <charconv>
#include <memory>
#include <optional>

#include "client/connection.h"
#include "client/job.h"
#include "client/output.h"
#include "client/output_json.h"
#include "client/screen.h"
#include "client/text.h"
#include "client/verbs.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

constexpr const char* kLeaseFooter =
    "examples\n"
    "  hbmtune lease --job 4711 --user alice --time 8h hip:0 hip:1\n"
    "  hbmtune lease hip:0 && hbmtune tune --device hip:0 --model ./config.json\n"
    "\n"
    "All devices or none; no probe of others starts there from then on, and those\n"
    "that run are stopped. Repeating it is no error. It ends with hbmtune release, or\n"
    "some minutes after the job's time. Ctrl-C leaves; the lease stays.";

struct LeaseFlags {
  JobFlag job;
  std::vector<std::string> devices;
  std::string time;
  std::string user;
  bool no_wait = false;
  ConnectionFlags connection;
  OutputFlag output;
};

absl::StatusOr<std::string> JobOf(const JobFlag& flag) {
  std::string job = flag.OrEnvironment();
  if (!job.empty()) return job;
  return absl::InvalidArgumentError("--job is missing, and this is no scheduler's job");
}

absl::StatusOr<int64_t> UidOf(const std::string& user) {
  if (const passwd* entry = getpwnam(user.c_str()); entry != nullptr) return entry->pw_uid;
  int64_t uid = 0;
  const char* end = user.data() + user.size();
  const auto read = std::from_chars(user.data(), end, uid);
  if (read.ec == std::errc() && read.ptr == end && uid >= 0) return uid;
  return absl::InvalidArgumentError("--user: there is no user '" + user + "'");
}

absl::StatusOr<v1::AcquireLeaseRequest> MakeRequest(const LeaseFlags& flags) {
  v1::AcquireLeaseRequest request;
  auto job = JobOf(flags.job);
  if (!job.ok()) return job.status();
  request.set_job_id(*job);
  request.mutable_devices()->Add(flags.devices.begin(), flags.devices.end());
  if (!flags.time.empty()) {
    const std::optional<double> seconds = ParseSeconds(flags.time);
    if (!seconds || *seconds <= 0) {
      return absl::InvalidArgumentError("--time: '" + flags.time +
                                        "' is not a time over 0 (like 90m or 8h)");
    }
    request.set_remaining_seconds(*seconds);
  }
  if (!flags.user.empty()) {
    auto uid = UidOf(flags.user);
    if (!uid.ok()) return uid.status();
    request.set_uid(*uid);
  }
  return request;
}

absl::StatusOr<v1::Lease> Await(const Connection& connection, const std::string& job) {
  v1::WaitLeaseRequest request;
  request.set_job_id(job);
  for (;;) {
    auto lease = Call(connection.devices(), &v1::Devices::StubInterface::WaitLease, request);
    if (!absl::IsDeadlineExceeded(lease.status())) return lease;
  }
}

void Print(const v1::Lease& lease) {
  std::vector<std::string> devices(lease.devices().begin(), lease.devices().end());
  std::string text = "job " + Harmless(lease.job_id());
  text += lease.state() == v1::LEASE_STATE_GRANTED ? " holds " : " will hold, once a probe has "
                                                                  "ended, ";
  text += JoinWords(devices, "and") + "\n";
  if (!lease.durable()) text += "the daemon could not write it down: a restart forgets it\n";
  WriteOut(stdout, text);
}

absl::StatusOr<ExitCode> RunLease(const LeaseFlags& flags) {
  auto request = MakeRequest(flags);
  if (!request.ok()) return request.status();
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  auto lease =
      Call((*connection)->devices(), &v1::Devices::StubInterface::AcquireLease, *request);
  if (lease.ok() && !flags.no_wait && lease->state() != v1::LEASE_STATE_GRANTED) {
    lease = Await(**connection, request->job_id());
  }
  if (!lease.ok()) return lease.status();
  if (flags.output.json()) {
    PrintJson(ToJson(ToOutput(*lease)));
  } else {
    Print(*lease);
  }
  return kDone;
}

struct ReleaseFlags {
  JobFlag job;
  ConnectionFlags connection;
};

absl::StatusOr<ExitCode> RunRelease(const ReleaseFlags& flags) {
  auto job = JobOf(flags.job);
  if (!job.ok()) return job.status();
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  v1::ReleaseLeaseRequest request;
  request.set_job_id(*job);
  auto answer =
      Call((*connection)->devices(), &v1::Devices::StubInterface::ReleaseLease, request);
  if (!answer.ok() && !absl::IsNotFound(answer.status())) return answer.status();
  return kDone;
}

}  // namespace

void AddLease(CLI::App& app, Invocation& invocation) {
  CLI::App* verb =
      app.add_subcommand("lease", "take devices for a job, and wait until it has them");
  verb->footer(kLeaseFooter);
  auto flags = std::make_shared<LeaseFlags>();
  AddDeviceNames(*verb, flags->devices);
  const std::string group = "for whom";
  flags->job.AddTo(*verb, "the scheduler's name of the job", group);
  verb->add_option("--time", flags->time, "the job's time limit [no limit]")
      ->type_name("TIME")
      ->group(group);
  verb->add_option("--user", flags->user,
                   "whose job it is, by name or number: a prolog runs as root [you]")
      ->type_name("USER")
      ->group(group);
  verb->add_flag("--no-wait", flags->no_wait, "do not wait for a probe that has to end")
      ->group(group);
  flags->output.AddTo(*verb);
  flags->connection.AddTo(*verb);
  verb->callback([flags, &invocation] { invocation.run = [flags] { return RunLease(*flags); }; });
}

void AddRelease(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("release", "give back what a job's lease holds");
  verb->footer(
      "examples\n  hbmtune release --job 4711\n\n"
      "Prints nothing. Releasing what is not held is no error: an epilog may run twice.");
  auto flags = std::make_shared<ReleaseFlags>();
  flags->job.AddTo(*verb, "the scheduler's name of the job", "for whom");
  flags->connection.AddTo(*verb);
  verb->callback(
      [flags, &invocation] { invocation.run = [flags] { return RunRelease(*flags); }; });
}

}  // namespace hbmtune::client

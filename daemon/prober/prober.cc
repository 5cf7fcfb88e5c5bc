#include "daemon/prober/prober.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "daemon/base/failpoint.h"
#include "daemon/prober/child_process.h"
#include "daemon/prober/device_lock.h"
#include "daemon/prober/probe_session.h"
#include "hbmtune/v1/probe.pb.h"
#include "kernels/core/hash.h"
#include "proto/convert.h"

extern "C" char** environ;

namespace hbmtune::daemon {
namespace {

v1::ProbeRequest RequestOf(const ProbeTask& task) {
  v1::ProbeRequest request;
  request.set_trial(task.trial);
  ToProto(task.workload, *request.mutable_workload());
  ToProto(task.config, *request.mutable_train_config());
  request.set_device(task.device);
  request.set_memory_bytes(task.memory_bytes);
  request.set_warmup_steps(task.warmup_steps);
  request.set_min_steps(task.min_steps);
  request.set_max_steps(task.max_steps);
  request.set_step_budget_seconds(task.step_budget_seconds);
  request.set_seed(task.seed);
  request.set_world_size(1);
  return request;
}

constexpr char kResultSuffix[] = ".result";

std::string FileNameOf(const std::string& trial) {
  return absl::StrReplaceAll(trial, {{"/", "-"}}) + ".";
}

// By what is asked, not by the trial's name alone: a new database counts from 1 again.
std::string ResultPath(const std::string& directory, const v1::ProbeRequest& request) {
  if (directory.empty()) return "";
  return absl::StrCat(directory, "/", FileNameOf(request.trial()),
                      HashText(request.SerializeAsString()), kResultSuffix);
}

std::optional<Measurement> LeftResult(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  v1::ProbeEvent::Finished finished;
  if (path.empty() || !file || !finished.ParseFromIstream(&file)) return std::nullopt;
  return FromProto<Measurement>(finished.measurement());
}

// A GPU's probe sees that GPU alone, whatever our own environment hides from us or shows.
std::vector<std::string> EnvironmentOf(const ProbeTask& task) {
  std::vector<std::string> variables;
  if (task.gpu_unique_id.empty()) return variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::string_view name = text.substr(0, text.find('='));
    const bool chooses = name == "ROCR_VISIBLE_DEVICES" || name == "HIP_VISIBLE_DEVICES" ||
                         name == "CUDA_VISIBLE_DEVICES" || name == "GPU_DEVICE_ORDINAL";
    if (!chooses) variables.emplace_back(text);
  }
  variables.push_back("ROCR_VISIBLE_DEVICES=GPU-" + task.gpu_unique_id);
  return variables;
}

}  // namespace

Prober::Prober(Settings settings, const Clock& clock, const Log& log)
    : settings_(std::move(settings)), clock_(clock), log_(log) {
  signal(SIGPIPE, SIG_IGN);  // a probe that dies early must not take us along
}

absl::StatusOr<LockFile> Prober::Lock(const ProbeTask& task,
                                      const Cancellation& cancellation) const {
  DeviceLockRequest request;
  request.directory = settings_.lock_directory;
  request.device = task.device;
  request.probe_path = settings_.probe_path;
  request.stop = settings_.stop;
  return LockDevice(request, cancellation, log_);
}

absl::StatusOr<std::optional<Measurement>> Prober::Collect(
    const ProbeTask& task, const Cancellation& cancellation) const {
  auto lock = Lock(task, cancellation);
  if (!lock.ok()) return lock.status();
  return LeftResult(ResultPath(settings_.result_directory, RequestOf(task)));
}

absl::StatusOr<Measurement> Prober::Run(const ProbeTask& task, const Cancellation& cancellation,
                                        const ProbeObserver& observer) const {
  auto lock = Lock(task, cancellation);
  if (!lock.ok()) return lock.status();
  v1::ProbeRequest probe_request = RequestOf(task);
  const std::string result_path = ResultPath(settings_.result_directory, probe_request);
  if (auto left = LeftResult(result_path)) {
    log_.Info("an earlier probe's result is taken", {{"trial", task.trial}});
    return *left;
  }
  if (absl::Status status = observer.locked(); !status.ok()) return status;
  probe_request.set_journal_path(settings_.journal_path);
  probe_request.set_result_path(result_path);
  ChildProcess::Command command;
  command.path = settings_.probe_path;
  command.inherit = lock->fd();
  command.environment = EnvironmentOf(task);
  auto child = ChildProcess::Spawn(command);
  if (!child.ok()) return child.status();
  lock->WritePid(child->pid());
  Failpoint("probe-started");
  ProbeSession session(*std::move(child), task, settings_.stop, clock_, log_);
  std::ostringstream bytes;
  google::protobuf::util::SerializeDelimitedToOstream(probe_request, &bytes);
  Measurement measurement = session.Follow(bytes.str(), cancellation, observer);
  if (session.lost()) lost_.Keep(std::move(session).TakeChild());
  return measurement;
}

void Prober::Forget(const ProbeTask& task) const {
  const std::string path = ResultPath(settings_.result_directory, RequestOf(task));
  if (!path.empty()) std::remove(path.c_str());
}

void Prober::ForgetAllBut(const std::set<std::string>& trials) const {
  std::error_code error;
  std::filesystem::directory_iterator files(settings_.result_directory, error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    const std::string name = files->path().filename().string();
    if (!absl::StrContains(name, kResultSuffix)) continue;
    const bool kept = std::any_of(trials.begin(), trials.end(), [&](const std::string& trial) {
      return name.starts_with(FileNameOf(trial));
    });
    if (!kept) std::remove(files->path().c_str());
  }
}

void Prober::ReapLost() const {
  for (int64_t pid : lost_.Reap()) log_.Warning("a lost probe has ended", {{"pid", pid}});
}

}  // namespace hbmtune::daemon

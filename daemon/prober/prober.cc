#include "daemon/prober/prober.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <fcntl.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "daemon/base/failpoint.h"
#include "daemon/prober/child_link.h"
#include "daemon/prober/device_lock.h"
#include "daemon/prober/event_reader.h"
#include "daemon/prober/probe_session.h"
#include "daemon/prober/unit_link.h"
#include "kernels/core/hash.h"
#include "proto/convert.h"

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
  request.set_gpu_unique_id(task.gpu_unique_id);
  request.set_threads(task.threads);
  if (task.calibration_seconds) {
    request.mutable_calibration()->set_budget_seconds(*task.calibration_seconds);
  }
  return request;
}

constexpr char kResultSuffix[] = ".result";
constexpr char kUnfinishedSuffix[] = ".new";  // of one that its probe was writing

std::string FileNameOf(const std::string& trial) {
  return absl::StrReplaceAll(trial, {{"/", "-"}}) + ".";
}

// By what is asked, not by the trial's name alone: a new database counts from 1 again.
std::string ResultPath(const std::string& directory, const v1::ProbeRequest& request) {
  if (directory.empty() || request.has_calibration()) return "";
  return absl::StrCat(directory, "/", FileNameOf(request.trial()),
                      HashText(request.SerializeAsString()), kResultSuffix);
}

std::optional<Measurement> LeftResult(const std::string& path) {
  std::ostringstream bytes;
  if (!path.empty()) bytes << std::ifstream(path, std::ios::binary).rdbuf();
  EventReader reader;
  reader.Append(bytes.str());
  auto event = reader.Next();
  if (!event.ok() || !*event || !(*event)->has_finished()) return std::nullopt;
  return FromProto<Measurement>((*event)->finished().measurement());
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
  const bool in_unit = !settings_.probe_socket.empty();
  const absl::Cleanup tidy = [&] {  // the file that StartInUnit made
    if (in_unit && !LeftResult(result_path)) std::remove(result_path.c_str());
  };
  auto probe = Start(probe_request, lock->fd(), result_path);
  if (!probe.ok()) return probe.status();
  if (!in_unit) lock->WritePid((*probe)->pid());
  Failpoint("probe-started");
  ProbeObserver noting = observer;
  noting.started = [&](int64_t pid) {
    if (in_unit && pid != 0) lock->WritePid(pid, kInUnit);
    observer.started(pid);
  };
  ProbeSession session(*std::move(probe), task, settings_.stop, clock_, log_);
  std::ostringstream bytes;
  google::protobuf::util::SerializeDelimitedToOstream(probe_request, &bytes);
  Measurement measurement = session.Follow(bytes.str(), cancellation, noting);
  const int64_t pid = session.pid();
  if (session.lost()) lost_.Keep(std::move(session).TakeProbe(), pid);
  return measurement;
}

absl::StatusOr<std::unique_ptr<ProbeLink>> Prober::Start(v1::ProbeRequest& request, int lock_fd,
                                                         const std::string& result_path) const {
  if (!settings_.probe_socket.empty()) return StartInUnit(request, lock_fd, result_path);
  request.set_journal_path(settings_.journal_path);
  request.set_result_path(result_path);
  return SpawnProbe(settings_.probe_path, lock_fd);
}

absl::StatusOr<std::unique_ptr<ProbeLink>> Prober::StartInUnit(
    v1::ProbeRequest& request, int lock_fd, const std::string& result_path) const {
  std::vector<UniqueFd> files;
  const auto add = [&](int file, v1::ProbeFile what) {
    files.emplace_back(file);
    request.add_files(what);
    return file >= 0;
  };
  const auto open_for = [](const std::string& path, int flags) {
    return open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  };
  if (!add(fcntl(lock_fd, F_DUPFD_CLOEXEC, 0), v1::PROBE_FILE_LOCK)) {
    return absl::ErrnoToStatus(errno, "cannot share the device's lock");
  }
  if (!result_path.empty() && !add(open_for(result_path, O_TRUNC), v1::PROBE_FILE_RESULT)) {
    return absl::ErrnoToStatus(errno, "cannot open " + result_path);
  }
  const std::string& journal = settings_.journal_path;
  if (!journal.empty() && !add(open_for(journal, O_APPEND), v1::PROBE_FILE_JOURNAL)) {
    return absl::ErrnoToStatus(errno, "cannot open " + journal);
  }
  return ConnectProbe(settings_.probe_socket, std::move(files));
}

void Prober::Forget(const ProbeTask& task) const {
  const std::string path = ResultPath(settings_.result_directory, RequestOf(task));
  if (path.empty()) return;
  std::remove(path.c_str());
  std::remove((path + kUnfinishedSuffix).c_str());
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

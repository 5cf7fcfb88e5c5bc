#include "daemon/prober/prober.h"

#include <google/protobuf/util/delimited_message_util.h>
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>

#include "daemon/prober/child_process.h"
#include "daemon/prober/device_lock.h"
#include "daemon/prober/probe_session.h"
#include "hbmtune/v1/probe.pb.h"
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
  return request;
}

// By what is asked, not by the trial's name alone: a new database counts from 1 again.
std::string ResultPath(const std::string& directory, const v1::ProbeRequest& request) {
  if (directory.empty()) return "";
  return directory + "/" + HashText(request.SerializeAsString()) + ".result";
}

std::optional<Measurement> LeftResult(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  v1::ProbeEvent::Finished finished;
  if (path.empty() || !file || !finished.ParseFromIstream(&file)) return std::nullopt;
  return FromProto<Measurement>(finished.measurement());
}

}  // namespace

Prober::Prober(Settings settings, const Clock& clock, const Log& log)
    : settings_(std::move(settings)), clock_(clock), log_(log) {
  signal(SIGPIPE, SIG_IGN);  // a probe that dies early must not take us along
}

absl::StatusOr<Measurement> Prober::Run(const ProbeTask& task, const Cancellation& cancellation,
                                        const ProbeObserver& observer) const {
  DeviceLockRequest request;
  request.directory = settings_.lock_directory;
  request.device = task.device;
  request.probe_path = settings_.probe_path;
  request.stop = settings_.stop;
  auto lock = LockDevice(request, cancellation, log_);
  if (!lock.ok()) return lock.status();
  v1::ProbeRequest probe_request = RequestOf(task);
  const std::string result_path = ResultPath(settings_.result_directory, probe_request);
  if (auto left = LeftResult(result_path)) {
    log_.Info("an earlier probe's result is taken", {{"trial", task.trial}});
    return *left;
  }
  probe_request.set_journal_path(settings_.journal_path);
  probe_request.set_result_path(result_path);
  ChildProcess::Command command;
  command.path = settings_.probe_path;
  command.inherit = lock->fd();
  auto child = ChildProcess::Spawn(command);
  if (!child.ok()) return child.status();
  lock->WritePid(child->pid());
  ProbeSession session(*std::move(child), task, settings_.stop, clock_, log_);
  std::ostringstream bytes;
  google::protobuf::util::SerializeDelimitedToOstream(probe_request, &bytes);
  return session.Follow(bytes.str(), cancellation, observer);
}

void Prober::Forget(const ProbeTask& task) const {
  const std::string path = ResultPath(settings_.result_directory, RequestOf(task));
  if (!path.empty()) std::remove(path.c_str());
}

}  // namespace hbmtune::daemon

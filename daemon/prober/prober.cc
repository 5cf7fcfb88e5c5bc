#include "daemon/prober/prober.h"

#include <google/protobuf/util/delimited_message_util.h>
#include <signal.h>

#include <sstream>

#include "daemon/prober/child_process.h"
#include "daemon/prober/device_lock.h"
#include "daemon/prober/probe_session.h"
#include "hbmtune/v1/probe.pb.h"
#include "proto/convert.h"

namespace hbmtune::daemon {
namespace {

std::string RequestBytes(const ProbeTask& task, const std::string& journal_path) {
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
  request.set_journal_path(journal_path);
  request.set_world_size(1);
  std::ostringstream out;
  google::protobuf::util::SerializeDelimitedToOstream(request, &out);
  return out.str();
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
  ChildProcess::Command command;
  command.path = settings_.probe_path;
  command.inherit = lock->fd();
  auto child = ChildProcess::Spawn(command);
  if (!child.ok()) return child.status();
  lock->WritePid(child->pid());
  ProbeSession session(*std::move(child), task, settings_.stop, clock_, log_);
  return session.Follow(RequestBytes(task, settings_.journal_path), cancellation, observer);
}

}  // namespace hbmtune::daemon

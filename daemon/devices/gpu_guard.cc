#include "daemon/devices/gpu_guard.h"

#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>

#include <algorithm>
#include <utility>

#include "daemon/devices/gpus.h"
#include "kernels/core/units.h"

namespace hbmtune::daemon {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(50);

std::string DescribeProcess(const GpuProcess& process) {
  const std::string program = ProgramOf(process.pid);
  return absl::StrCat("process ", process.pid, program.empty() ? "" : " (" + program + ")",
                      " holds ", FormatBytes(process.vram_bytes));
}

}  // namespace

GpuGuard::GpuGuard(Sysfs sysfs, DeviceArbiter& arbiter, BaselineStore& store, const Clock& clock,
                   const Log& log, Limits limits)
    : sysfs_(std::move(sysfs)),
      arbiter_(arbiter),
      store_(store),
      clock_(clock),
      log_(log),
      limits_(limits) {}

int64_t GpuGuard::Usage::unaccounted_bytes() const {
  int64_t bytes = used_bytes;
  for (const GpuProcess& process : processes) bytes -= process.vram_bytes;
  return bytes;
}

absl::Status GpuGuard::Restore() {
  auto stored = store_.Load();
  if (!stored.ok()) return stored.status();
  absl::MutexLock lock(&mutex_);
  for (GpuBaseline& baseline : *stored) {
    if (baseline.boot_id != clock_.BootId()) {
      store_.Remove(baseline.device).IgnoreError();
      continue;
    }
    if (!baseline.dirty.empty()) arbiter_.MarkDirty(baseline.device, baseline.dirty);
    const std::string device = baseline.device;
    known_[device] = {std::move(baseline), 0};
  }
  return absl::OkStatus();
}

absl::StatusOr<GpuGuard::Usage> GpuGuard::Read(const std::string& device) const {
  for (const GpuIdentity& gpu : sysfs_.Discover()) {
    if (gpu.name() != device) continue;
    auto used = sysfs_.ReadVramUsed(gpu);
    if (!used) {
      return absl::FailedPreconditionError(
          absl::StrCat("the driver does not tell how much memory of ", device, " is used"));
    }
    Usage usage{*used, sysfs_.Processes(gpu)};
    std::sort(usage.processes.begin(), usage.processes.end(),
              [](const auto& a, const auto& b) { return a.vram_bytes > b.vram_bytes; });
    return usage;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the driver shows no GPU ", device, " at the moment"));
}

std::optional<GpuGuard::Known> GpuGuard::Find(const std::string& device) const {
  absl::MutexLock lock(&mutex_);
  auto found = known_.find(device);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

absl::Status GpuGuard::Check(const std::string& device) {
  auto usage = Read(device);
  if (!usage.ok()) return usage.status();
  // One without memory has only opened /dev/kfd.
  if (!usage->processes.empty() && usage->processes.front().vram_bytes > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device ", device, " is in use: ", DescribeProcess(usage->processes.front())));
  }
  const std::optional<Known> known = Find(device);
  if (known && usage->used_bytes > known->baseline.used_bytes + limits_.slack_bytes) {
    const std::string why = absl::StrCat(
        FormatBytes(usage->used_bytes), " are used, by no process that the driver knows; it was ",
        FormatBytes(known->baseline.used_bytes), " before");
    MarkDirty(device, why, 0);
    return absl::FailedPreconditionError(absl::StrCat("device ", device, " is dirty: ", why));
  }
  absl::MutexLock lock(&mutex_);
  if (known && known->baseline.used_bytes <= usage->used_bytes) return absl::OkStatus();
  GpuBaseline& baseline = known_[device].baseline;
  baseline = {device, clock_.BootId(), usage->used_bytes, ""};
  Save(baseline);
  return absl::OkStatus();
}

std::string GpuGuard::Shortcoming(const std::string& device, int64_t baseline_bytes,
                                  int64_t probe_pid) const {
  auto usage = Read(device);
  if (!usage.ok()) return std::string(usage.status().message());
  for (const GpuProcess& process : usage->processes) {
    if (process.pid == probe_pid) return absl::StrCat("the probe's ", DescribeProcess(process));
  }
  const int64_t over = usage->unaccounted_bytes() - baseline_bytes;
  if (over <= limits_.slack_bytes) return "";
  return absl::StrCat(FormatBytes(over), " were not given back when a probe had ended");
}

void GpuGuard::AwaitBaseline(const std::string& device, int64_t probe_pid) {
  const std::optional<Known> known = Find(device);
  if (!known) return;  // no Check went before, so no probe ran
  const absl::Duration until = clock_.SinceBoot() + limits_.patience;
  for (;;) {
    const std::string why = Shortcoming(device, known->baseline.used_bytes, probe_pid);
    if (why.empty()) return;
    if (clock_.SinceBoot() >= until) return MarkDirty(device, why, probe_pid);
    absl::SleepFor(kLookEvery);
  }
}

void GpuGuard::MarkDirty(const std::string& device, const std::string& why, int64_t probe_pid) {
  {
    absl::MutexLock lock(&mutex_);
    Known& known = known_[device];
    known.lost_pid = probe_pid;
    known.baseline.dirty = why;
    Save(known.baseline);
    arbiter_.MarkDirty(device, why);
  }
  log_.Error("device is dirty: no probe starts on it", {{"device", device}, {"why", why}});
}

void GpuGuard::Tick() {
  std::vector<Known> dirty;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [device, known] : known_) {
      if (!known.baseline.dirty.empty()) dirty.push_back(known);
    }
  }
  for (const Known& known : dirty) {
    const std::string& device = known.baseline.device;
    if (!Shortcoming(device, known.baseline.used_bytes, known.lost_pid).empty()) continue;
    absl::MutexLock lock(&mutex_);
    known_[device].baseline.dirty.clear();
    Save(known_[device].baseline);
    arbiter_.MarkClean(device);
    log_.Info("device is clean again", {{"device", device}});
  }
}

void GpuGuard::Forget(const std::vector<std::string>& devices) {
  absl::MutexLock lock(&mutex_);
  for (const std::string& device : devices) {
    if (known_.erase(device) == 0) continue;
    store_.Remove(device).IgnoreError();  // on a full disk no probe starts anyway
    arbiter_.MarkClean(device);
  }
}

int64_t GpuGuard::dirty() const {
  absl::MutexLock lock(&mutex_);
  return std::count_if(known_.begin(), known_.end(), [](const auto& entry) {
    return !entry.second.baseline.dirty.empty();
  });
}

// On a full disk no probe starts, so there is nothing that a lost row could hide.
void GpuGuard::Save(const GpuBaseline& baseline) { store_.Save(baseline).IgnoreError(); }

}  // namespace hbmtune::daemon

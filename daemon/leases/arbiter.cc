#include "daemon/leases/arbiter.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>

namespace hbmtune::daemon {
namespace {

bool IsGpu(const std::string& device) {
  return device != "host" && device.rfind("model:", 0) != 0;
}

}  // namespace

DeviceArbiter::DeviceArbiter(const Clock& clock, LeaseStore& store, Options options,
                             DrainCallback on_drain)
    : clock_(clock), store_(store), on_drain_(std::move(on_drain)), options_(options) {}

void DeviceArbiter::SetOptions(Options options) {
  absl::MutexLock lock(&mutex_);
  options_ = options;
}

absl::Status DeviceArbiter::Restore() {
  auto stored = store_.Load();
  if (!stored.ok()) return stored.status();
  absl::MutexLock lock(&mutex_);
  for (Lease& lease : *stored) {
    if (lease.boot_id != clock_.BootId() || lease.ends <= clock_.SinceBoot()) {
      store_.Remove(lease.job_id).IgnoreError();
      continue;
    }
    for (const std::string& device : lease.devices) devices_[device].leased_by = lease.job_id;
    leases_[lease.job_id] = std::move(lease);
  }
  return absl::OkStatus();
}

// --- leases -----------------------------------------------------------------------------------

absl::Duration DeviceArbiter::EndAfter(absl::Duration remaining) const {
  if (remaining == absl::InfiniteDuration()) return remaining;
  return clock_.SinceBoot() + remaining + options_.grace;
}

absl::Status DeviceArbiter::MayLease(const std::string& job_id,
                                     const std::vector<std::string>& devices) {
  for (const std::string& name : devices) {
    const Device& device = devices_[name];
    if (!device.leased_by.empty() && device.leased_by != job_id) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", name, " is leased by job ", device.leased_by));
    }
    if (device.quiesced) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", name, " is quiesced; resume it first"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceArbiter::Answer> DeviceArbiter::Acquire(const std::string& job_id,
                                                             std::vector<std::string> devices,
                                                             int64_t uid,
                                                             absl::Duration remaining) {
  if (job_id.empty()) return absl::InvalidArgumentError("job_id: must name the job");
  if (devices.empty()) return absl::InvalidArgumentError("devices: must name at least one");
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  Answer answer;
  {
    absl::MutexLock lock(&mutex_);
    auto held = leases_.find(job_id);
    if (held != leases_.end()) {
      if (held->second.devices == devices) {
        return Answer{StateOf(held->second), MakeDurable(held->second)};
      }
      return absl::AlreadyExistsError(absl::StrCat("job ", job_id, " holds a lease on ",
                                                   absl::StrJoin(held->second.devices, ", "),
                                                   " already; release it first"));
    }
    if (auto status = MayLease(job_id, devices); !status.ok()) return status;
    Lease lease{job_id, devices, uid, clock_.BootId(), EndAfter(remaining), false};
    answer.durable = MakeDurable(lease);
    for (const std::string& name : devices) devices_[name].leased_by = job_id;
    answer.state = StateOf(lease);
    leases_[job_id] = std::move(lease);
  }
  if (answer.state == LeaseState::kDraining) Drain(devices);
  return answer;
}

bool DeviceArbiter::MakeDurable(Lease& lease) {
  if (!lease.durable) lease.durable = store_.Save(lease).ok();
  if (lease.durable) not_removed_.erase(lease.job_id);
  return lease.durable;
}

LeaseState DeviceArbiter::StateOf(const Lease& lease) const {
  bool draining = std::any_of(lease.devices.begin(), lease.devices.end(), [&](const auto& name) {
    auto found = devices_.find(name);
    return found != devices_.end() && found->second.probing;
  });
  return draining ? LeaseState::kDraining : LeaseState::kGranted;
}

absl::Status DeviceArbiter::Wait(const std::string& job_id, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto found = leases_.find(job_id);
    return found == leases_.end() || StateOf(found->second) == LeaseState::kGranted;
  };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&settled), deadline)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the lease of job ", job_id, " is still draining: a probe has not ended"));
  }
  if (leases_.count(job_id) == 0) {
    return absl::NotFoundError(absl::StrCat("job ", job_id, " holds no lease"));
  }
  return absl::OkStatus();
}

absl::Status DeviceArbiter::Renew(const std::string& job_id, absl::Duration remaining) {
  absl::MutexLock lock(&mutex_);
  auto found = leases_.find(job_id);
  if (found == leases_.end()) {
    return absl::NotFoundError(absl::StrCat("job ", job_id, " holds no lease"));
  }
  found->second.ends = EndAfter(remaining);
  found->second.durable = false;
  MakeDurable(found->second);
  return absl::OkStatus();
}

void DeviceArbiter::Drop(const std::string& job_id) {
  auto found = leases_.find(job_id);
  if (found == leases_.end()) return;
  for (const std::string& name : found->second.devices) devices_[name].leased_by.clear();
  if (!store_.Remove(job_id).ok()) not_removed_.insert(job_id);
  leases_.erase(found);
}

void DeviceArbiter::Release(const std::string& job_id) {
  absl::MutexLock lock(&mutex_);
  Drop(job_id);
}

std::vector<std::string> DeviceArbiter::Expire() {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> over;
  for (auto& [job_id, lease] : leases_) {
    if (lease.ends <= clock_.SinceBoot()) {
      over.push_back(job_id);
    } else {
      MakeDurable(lease);
    }
  }
  for (const std::string& job_id : over) Drop(job_id);
  std::erase_if(not_removed_, [&](const auto& job_id) { return store_.Remove(job_id).ok(); });
  return over;
}

// --- probes -----------------------------------------------------------------------------------

absl::Status DeviceArbiter::MayEverProbe(const std::string& name, const Claim& claim) const {
  if (options_.policy == ProbingPolicy::kOff && name.rfind("model:", 0) != 0) {
    return absl::FailedPreconditionError("probing is off on this node");
  }
  if (IsGpu(name) && options_.policy == ProbingPolicy::kAllocation && claim.job_id.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", name, " may be probed only inside a job that holds it: acquire a "
                     "lease and give its job_id, or ask the admin for probing = \"idle\""));
  }
  return absl::OkStatus();
}

absl::Status DeviceArbiter::Admit(const std::string& device, const Claim& claim) const {
  absl::MutexLock lock(&mutex_);
  return MayEverProbe(device, claim);
}

absl::Status DeviceArbiter::MayProbe(const std::string& name, const Claim& claim) {
  const Device& device = devices_[name];
  if (device.probing) {
    return absl::FailedPreconditionError(absl::StrCat("device ", name, " is being probed"));
  }
  if (device.quiesced) {
    return absl::FailedPreconditionError(absl::StrCat("device ", name, " is quiesced"));
  }
  if (!device.dirty.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", name, " is dirty: ", device.dirty));
  }
  const bool owns = !claim.job_id.empty() && device.leased_by == claim.job_id &&
                    leases_[claim.job_id].uid == claim.uid;
  if (!device.leased_by.empty() && !owns) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", name, " is leased by job ", device.leased_by));
  }
  if (auto status = MayEverProbe(name, claim); !status.ok()) return status;
  if (IsGpu(name) && options_.policy == ProbingPolicy::kAllocation && !owns) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", claim.job_id, " holds no lease on ", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceArbiter::Permit> DeviceArbiter::BeginProbe(const std::string& device,
                                                                const Claim& claim) {
  absl::MutexLock lock(&mutex_);
  if (auto status = MayProbe(device, claim); !status.ok()) return status;
  devices_[device].probing = true;
  return Permit(this, device);
}

void DeviceArbiter::EndProbe(const std::string& device) {
  absl::MutexLock lock(&mutex_);
  devices_[device].probing = false;
}

DeviceArbiter::Permit& DeviceArbiter::Permit::operator=(Permit&& other) noexcept {
  std::swap(arbiter_, other.arbiter_);
  std::swap(device_, other.device_);
  return *this;
}

DeviceArbiter::Permit::~Permit() {
  if (arbiter_ != nullptr) arbiter_->EndProbe(device_);
}

// --- the admin's and the prober's word ----------------------------------------------------------

void DeviceArbiter::Drain(const std::vector<std::string>& devices) {
  for (const std::string& device : devices) {
    if (View(device).probing) on_drain_(device);
  }
}

void DeviceArbiter::Quiesce(const std::vector<std::string>& devices) {
  {
    absl::MutexLock lock(&mutex_);
    for (const std::string& device : devices) devices_[device].quiesced = true;
  }
  Drain(devices);
}

void DeviceArbiter::Resume(const std::vector<std::string>& devices) {
  absl::MutexLock lock(&mutex_);
  for (const std::string& device : devices) devices_[device].quiesced = false;
}

void DeviceArbiter::MarkDirty(const std::string& device, const std::string& why) {
  absl::MutexLock lock(&mutex_);
  devices_[device].dirty = why;
}

void DeviceArbiter::MarkClean(const std::string& device) {
  absl::MutexLock lock(&mutex_);
  devices_[device].dirty.clear();
}

DeviceArbiter::DeviceView DeviceArbiter::View(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  auto found = devices_.find(name);
  if (found == devices_.end()) return {};
  const Device& device = found->second;
  return {device.probing, device.quiesced, device.leased_by, device.dirty};
}

std::vector<Lease> DeviceArbiter::Leases() const {
  absl::MutexLock lock(&mutex_);
  std::vector<Lease> leases;
  for (const auto& [unused, lease] : leases_) leases.push_back(lease);
  return leases;
}

}  // namespace hbmtune::daemon

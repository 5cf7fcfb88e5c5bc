#include "daemon/services/devices_service.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>

#include "daemon/base/errors.h"
#include "daemon/services/calibrate_stream.h"
#include "daemon/services/memory_history.h"
#include "daemon/services/memory_reports.h"
#include "daemon/services/messages.h"
#include "daemon/services/status.h"

namespace hbmtune::daemon {
namespace {

// 0 is no end.
absl::StatusOr<absl::Duration> ParseRemaining(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) {
    return FieldError("remaining_seconds", "remaining_seconds must be a time");
  }
  return seconds == 0 ? absl::InfiniteDuration() : absl::Seconds(seconds);
}

// VRAM is read at 10 Hz: a shorter period would show nothing new.
absl::StatusOr<absl::Duration> ParsePeriod(double seconds) {
  if (seconds == 0) return absl::Seconds(1);
  if (!(seconds >= 0.1 && seconds <= 3600)) {
    return FieldError("period_seconds", absl::StrCat("period_seconds is ", seconds,
                                                     ": it must be between 0.1 and 3600"));
  }
  return absl::Seconds(seconds);
}

absl::StatusOr<Calibrator::Request> ParseCalibration(const v1::CalibrateRequest& message,
                                                     const DeviceInfo& device) {
  constexpr double kMostSeconds = 3600;
  constexpr int64_t kMostThreads = 1024;
  if (device.kind != DeviceKind::kHost) {
    return FieldError("device",
                      absl::StrCat(device.name, " cannot be calibrated, only host so far"));
  }
  const double seconds = message.budget_seconds();
  if (!(seconds >= 0 && seconds <= kMostSeconds)) {
    return FieldError("budget_seconds", absl::StrCat("budget_seconds is ", seconds,
                                                     ": it must be between 0 and 3600"));
  }
  if (message.threads() < 0 || message.threads() > kMostThreads) {
    return FieldError("threads", absl::StrCat("threads is ", message.threads(),
                                              ": it must be between 0 and 1024"));
  }
  Calibrator::Request request;
  if (seconds > 0) request.budget_seconds = seconds;
  request.threads = message.threads();
  return request;
}

void SetLease(const Lease& lease, v1::LeaseState state, bool durable, v1::Lease& message) {
  message.set_job_id(lease.job_id);
  for (const std::string& device : lease.devices) message.add_devices(device);
  message.set_state(state);
  message.set_durable(durable);
}

}  // namespace

grpc::ServerUnaryReactor* DevicesService::ListDevices(grpc::CallbackServerContext* context,
                                                      const v1::ListDevicesRequest*,
                                                      v1::ListDevicesResponse* response) {
  return answer_.Now(context, "ListDevices", [&](const Caller&) {
    for (const DeviceInfo& device : parts_.catalogue.List()) {
      ToMessage(device, parts_.studies.LoadOf(device.name), parts_.arbiter.View(device.name),
                *response->add_devices());
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* DevicesService::GetDevice(grpc::CallbackServerContext* context,
                                                    const v1::GetDeviceRequest* request,
                                                    v1::Device* response) {
  return answer_.Now(context, "GetDevice", [&](const Caller&) -> absl::Status {
    auto device = parts_.catalogue.Find(request->name());
    if (!device.ok()) return device.status();
    ToMessage(*device, parts_.studies.LoadOf(device->name), parts_.arbiter.View(device->name),
              *response);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<std::string>> DevicesService::Resolve(const Names& names) const {
  std::vector<std::string> resolved;
  for (const std::string& name : names) {
    auto device = parts_.catalogue.Find(name);
    if (!device.ok()) return device.status();
    resolved.push_back(device->name);
  }
  if (resolved.empty()) return FieldError("devices", "no devices: name at least one");
  return resolved;
}

absl::StatusOr<Lease> DevicesService::LeaseFor(const Caller& caller,
                                               const std::string& job_id) const {
  for (Lease& lease : parts_.arbiter.Leases()) {
    if (lease.job_id != job_id) continue;
    if (caller.MayChange(lease.uid)) return std::move(lease);
    return WithReason(absl::PermissionDeniedError(
                          absl::StrCat("the lease of job ", job_id, " is another user's")),
                      "NOT_OWNER");
  }
  return WithReason(absl::NotFoundError(absl::StrCat("job ", job_id, " holds no lease")),
                    "NO_LEASE");
}

absl::Status DevicesService::Acquire(const Caller& caller,
                                     const v1::AcquireLeaseRequest& request,
                                     v1::Lease& response) {
  if (request.job_id().empty()) return FieldError("job_id", "no job_id: the lease's name");
  auto devices = Resolve(request.devices());
  if (!devices.ok()) return devices.status();
  auto remaining = ParseRemaining(request.remaining_seconds());
  if (!remaining.ok()) return remaining.status();
  auto known = LeaseFor(caller, request.job_id());
  if (absl::IsPermissionDenied(known.status())) return known.status();
  const int64_t uid = request.has_uid() ? request.uid() : caller.identity.uid;
  if (!caller.MayChange(uid)) {
    return WithReason(absl::PermissionDeniedError("only an admin takes a lease for another user"),
                      "NOT_OWNER");
  }
  auto answer = parts_.arbiter.Acquire(request.job_id(), *devices, uid, *remaining);
  if (!answer.ok()) return answer.status();
  auto lease = LeaseFor(caller, request.job_id());
  if (!lease.ok()) return lease.status();
  SetLease(*lease,
           answer->state == LeaseState::kGranted ? v1::LEASE_STATE_GRANTED
                                                 : v1::LEASE_STATE_DRAINING,
           answer->durable, response);
  parts_.log.Info("lease is acquired", {{"job", request.job_id()},
                                        {"uid", uid},
                                        {"devices", absl::StrJoin(lease->devices, ",")},
                                        {"durable", answer->durable ? "yes" : "no"}});
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* DevicesService::AcquireLease(grpc::CallbackServerContext* context,
                                                       const v1::AcquireLeaseRequest* request,
                                                       v1::Lease* response) {
  return answer_.Later(context, "AcquireLease", [=, this](const Caller& caller) {
    return Acquire(caller, *request, *response);
  });
}

grpc::ServerUnaryReactor* DevicesService::WaitLease(grpc::CallbackServerContext* context,
                                                    const v1::WaitLeaseRequest* request,
                                                    v1::Lease* response) {
  auto* reactor = context->DefaultReactor();
  auto caller = answer_.Check(context, "WaitLease");
  absl::StatusOr<Lease> lease = caller.ok() ? LeaseFor(*caller, request->job_id())
                                            : absl::StatusOr<Lease>(caller.status());
  if (!lease.ok()) {
    reactor->Finish(ToGrpc(lease.status()));
    return reactor;
  }
  parts_.waiters.Add(
      request->job_id(), [context] { return context->IsCancelled(); },
      [reactor, response, lease = *lease](const absl::Status& status) {
        if (status.ok()) SetLease(lease, v1::LEASE_STATE_GRANTED, lease.durable, *response);
        reactor->Finish(ToGrpc(status));
      });
  return reactor;
}

grpc::ServerUnaryReactor* DevicesService::RenewLease(grpc::CallbackServerContext* context,
                                                     const v1::RenewLeaseRequest* request,
                                                     v1::Lease* response) {
  return answer_.Later(context, "RenewLease", [=, this](const Caller& caller) -> absl::Status {
    auto remaining = ParseRemaining(request->remaining_seconds());
    if (!remaining.ok()) return remaining.status();
    auto lease = LeaseFor(caller, request->job_id());
    if (!lease.ok()) return lease.status();
    absl::Status status = parts_.arbiter.Renew(request->job_id(), *remaining);
    if (!status.ok()) return status;
    const bool granted = parts_.arbiter.Wait(request->job_id(), absl::Now()).ok();
    lease = LeaseFor(caller, request->job_id());
    if (!lease.ok()) return lease.status();
    SetLease(*lease, granted ? v1::LEASE_STATE_GRANTED : v1::LEASE_STATE_DRAINING, lease->durable,
             *response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* DevicesService::ReleaseLease(grpc::CallbackServerContext* context,
                                                       const v1::ReleaseLeaseRequest* request,
                                                       v1::ReleaseLeaseResponse*) {
  return answer_.Later(context, "ReleaseLease", [=, this](const Caller& caller) -> absl::Status {
    auto lease = LeaseFor(caller, request->job_id());
    if (absl::IsNotFound(lease.status())) return absl::OkStatus();
    if (!lease.ok()) return lease.status();
    parts_.arbiter.Release(request->job_id());
    parts_.log.Info("lease is released",
                    {{"job", request->job_id()}, {"uid", caller.identity.uid}});
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* DevicesService::Quiesce(grpc::CallbackServerContext* context,
                                                  const v1::QuiesceRequest* request,
                                                  v1::QuiesceResponse*) {
  return answer_.Later(context, "Quiesce", [=, this](const Caller& caller) -> absl::Status {
    auto devices = Resolve(request->devices());
    if (!devices.ok()) return devices.status();
    parts_.arbiter.Quiesce(*devices);
    parts_.log.Info("devices are quiesced", {{"devices", absl::StrJoin(*devices, ",")},
                                             {"uid", caller.identity.uid}});
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* DevicesService::Resume(grpc::CallbackServerContext* context,
                                                 const v1::ResumeRequest* request,
                                                 v1::ResumeResponse*) {
  return answer_.Later(context, "Resume", [=, this](const Caller& caller) -> absl::Status {
    auto devices = Resolve(request->devices());
    if (!devices.ok()) return devices.status();
    parts_.gpus.Forget(*devices);
    parts_.arbiter.Resume(*devices);
    parts_.log.Info("devices are resumed", {{"devices", absl::StrJoin(*devices, ",")},
                                            {"uid", caller.identity.uid}});
    return absl::OkStatus();
  });
}

absl::StatusOr<std::string> DevicesService::MayReport(const Caller& caller,
                                                      const std::string& device,
                                                      const std::string& job_id) const {
  auto found = parts_.catalogue.Find(device);
  if (!found.ok()) return found.status();
  if (found->kind == DeviceKind::kModel) {
    return FieldError("device",
                      absl::StrCat(found->name, " is a modelled device: no job runs on it"));
  }
  auto lease = LeaseFor(caller, job_id);
  if (absl::IsPermissionDenied(lease.status())) return lease.status();
  return found->name;
}

grpc::ServerWriteReactor<v1::CalibrateEvent>* DevicesService::Calibrate(
    grpc::CallbackServerContext* context, const v1::CalibrateRequest* message) {
  auto caller = answer_.Check(context, "Calibrate");
  if (!caller.ok()) return RefuseCalibration(ToGrpc(caller.status()));
  auto device = parts_.catalogue.Find(message->device());
  if (!device.ok()) return RefuseCalibration(ToGrpc(device.status()));
  auto request = ParseCalibration(*message, *device);
  if (!request.ok()) return RefuseCalibration(ToGrpc(request.status()));
  request->uid = caller->identity.uid;
  return StreamCalibration(parts_.calibrator, *request);
}

grpc::ServerReadReactor<v1::ReportAllocatorRequest>* DevicesService::ReportAllocator(
    grpc::CallbackServerContext* context, v1::ReportAllocatorResponse* response) {
  auto caller = answer_.Check(context, "ReportAllocator");
  if (!caller.ok()) return RefuseReports(ToGrpc(caller.status()));
  auto check = [this, caller = *caller](const std::string& device, const std::string& job_id) {
    return MayReport(caller, device, job_id);
  };
  return TakeReports(parts_.monitors, caller->identity.uid, check, response);
}

grpc::ServerWriteReactor<v1::MemorySample>* DevicesService::WatchMemory(
    grpc::CallbackServerContext* context, const v1::WatchMemoryRequest* request) {
  auto caller = answer_.Check(context, "WatchMemory");
  if (!caller.ok()) return MemoryStreams::Refuse(ToGrpc(caller.status()));
  auto device = parts_.catalogue.Find(request->device());
  if (!device.ok()) return MemoryStreams::Refuse(ToGrpc(device.status()));
  auto period = ParsePeriod(request->period_seconds());
  if (!period.ok()) return MemoryStreams::Refuse(ToGrpc(period.status()));
  return parts_.memory_streams.Open(device->name, *period);
}

grpc::ServerUnaryReactor* DevicesService::ListMemoryMinutes(
    grpc::CallbackServerContext* context, const v1::ListMemoryMinutesRequest* request,
    v1::ListMemoryMinutesResponse* response) {
  return answer_.Later(context, "ListMemoryMinutes", [=, this](const Caller&) {
    return ListMinutes(parts_.catalogue, parts_.memory_store, *request, *response);
  });
}

grpc::ServerUnaryReactor* DevicesService::ListFindings(grpc::CallbackServerContext* context,
                                                       const v1::ListFindingsRequest* request,
                                                       v1::ListFindingsResponse* response) {
  return answer_.Later(context, "ListFindings", [=, this](const Caller&) {
    return daemon::ListFindings(parts_.catalogue, parts_.memory_store, *request, *response);
  });
}

}  // namespace hbmtune::daemon

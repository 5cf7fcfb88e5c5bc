#include "daemon/node/node_lease.h"

#include <absl/strings/str_cat.h>
#include <grpcpp/create_channel.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace hbmtune::daemon {
namespace {

// One that is slow to answer, or to stop a probe, is asked again.
constexpr auto kPatience = std::chrono::seconds(3);

template <class Method, class Request, class Response>
grpc::Status Call(Method method, v1::Devices::Stub& stub, const Request& request,
                  Response* response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  return (stub.*method)(&context, request, response);
}

}  // namespace

NodeLease::NodeLease(std::string socket, std::string name, const Log& log)
    : socket_(std::move(socket)), name_(std::move(name)), log_(log) {}

NodeLease::~NodeLease() {
  absl::MutexLock lock(&mutex_);
  while (!held_.empty()) ReleaseHeld(*held_.begin());
}

v1::Devices::Stub& NodeLease::Stub() {
  if (stub_ == nullptr) {
    stub_ = v1::Devices::NewStub(
        grpc::CreateChannel("unix:" + socket_, grpc::InsecureChannelCredentials()));
  }
  return *stub_;
}

absl::Status NodeLease::Hold(const std::string& device, absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  if (access(socket_.c_str(), F_OK) != 0) return absl::OkStatus();
  v1::AcquireLeaseRequest request;
  request.set_job_id(JobOf(device));
  request.add_devices(device);
  request.set_remaining_seconds(absl::ToDoubleSeconds(time));
  v1::Lease lease;
  grpc::Status status = Call(&v1::Devices::Stub::AcquireLease, Stub(), request, &lease);
  if (status.error_code() == grpc::UNAVAILABLE) return absl::OkStatus();  // nobody listens
  if (!status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the node's daemon: ", status.error_message()));
  }
  if (held_.insert(device).second) {
    log_.Info("the node's daemon leases a device to us", {{"device", device}});
  }
  v1::RenewLeaseRequest renew;
  renew.set_job_id(request.job_id());
  renew.set_remaining_seconds(request.remaining_seconds());
  status = Call(&v1::Devices::Stub::RenewLease, Stub(), renew, &lease);
  v1::WaitLeaseRequest wait;
  wait.set_job_id(request.job_id());
  if (status.ok()) status = Call(&v1::Devices::Stub::WaitLease, Stub(), wait, &lease);
  if (status.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the node's daemon stops a probe on ", device, " first"));
}

void NodeLease::Release(const std::string& device) {
  absl::MutexLock lock(&mutex_);
  if (held_.contains(device)) ReleaseHeld(device);
}

void NodeLease::ReleaseHeld(const std::string& device) {
  v1::ReleaseLeaseRequest request;
  request.set_job_id(JobOf(device));
  v1::ReleaseLeaseResponse response;
  const grpc::Status status =
      Call(&v1::Devices::Stub::ReleaseLease, Stub(), request, &response);
  if (!status.ok()) {
    log_.Warning("a lease of the node's daemon ends by itself",
                 {{"device", device}, {"error", status.error_message()}});
  }
  held_.erase(std::string(device));
}

}  // namespace hbmtune::daemon

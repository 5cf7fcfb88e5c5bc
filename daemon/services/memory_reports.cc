#include "daemon/services/memory_reports.h"

#include <utility>

#include "daemon/base/errors.h"
#include "daemon/services/status.h"
#include "proto/convert.h"

namespace hbmtune::daemon {
namespace {

constexpr size_t kJobIdBytes = 256;
constexpr int kFindingsTold = 100;

using Request = v1::ReportAllocatorRequest;

// gRPC calls the methods one after another, but OnCancel, which this has no use for: a read that is
// running fails by itself.
class ReportStream final : public grpc::ServerReadReactor<Request> {
 public:
  ReportStream(JobMonitors& monitors, int64_t uid, ReportChecker check,
               v1::ReportAllocatorResponse* response)
      : monitors_(monitors), uid_(uid), check_(std::move(check)), response_(*response) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (absl::Status status = Take(); !status.ok()) return Finish(ToGrpc(status));
    request_.Clear();
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Take() {
    if (absl::Status status = TakeNames(); !status.ok()) return status;
    if (!request_.has_report()) return FieldError("report", "no report in the message");
    auto findings = monitors_.Report(device_, job_id_, uid_,
                                     FromProto<AllocatorReport>(request_.report()));
    if (!findings.ok()) return findings.status();
    response_.set_reports(response_.reports() + 1);
    for (const Finding& finding : *findings) {
      if (response_.findings_size() < kFindingsTold) ToProto(finding, *response_.add_findings());
    }
    return absl::OkStatus();
  }

  // Looks names up when they change only: a job reports many times a second.
  absl::Status TakeNames() {
    const std::string& named = request_.device().empty() ? named_ : request_.device();
    const std::string& job_id = request_.job_id().empty() ? job_id_ : request_.job_id();
    if (named.empty()) return FieldError("device", "no device: the first message must name it");
    if (job_id.empty()) return FieldError("job_id", "no job_id: the first message must name it");
    if (job_id.size() > kJobIdBytes) return FieldError("job_id", "job_id is over 256 bytes");
    if (named == named_ && job_id == job_id_) return absl::OkStatus();
    auto device = check_(named, job_id);
    if (!device.ok()) return device.status();
    device_ = *std::move(device);
    named_ = named;
    job_id_ = job_id;
    return absl::OkStatus();
  }

  JobMonitors& monitors_;
  const int64_t uid_;
  const ReportChecker check_;
  v1::ReportAllocatorResponse& response_;
  Request request_;
  std::string named_;  // as the client calls the device
  std::string device_;
  std::string job_id_;
};

class RefusedReports final : public grpc::ServerReadReactor<Request> {
 public:
  explicit RefusedReports(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerReadReactor<Request>* TakeReports(JobMonitors& monitors, int64_t uid,
                                              ReportChecker check,
                                              v1::ReportAllocatorResponse* response) {
  return new ReportStream(monitors, uid, std::move(check), response);
}

grpc::ServerReadReactor<Request>* RefuseReports(const grpc::Status& status) {
  return new RefusedReports(status);
}

}  // namespace hbmtune::daemon

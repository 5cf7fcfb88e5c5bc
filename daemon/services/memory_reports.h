#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <string>

#include "daemon/monitor/job_monitors.h"
#include "hbmtune/v1/devices.pb.h"

namespace hbmtune::daemon {

// The device's own name, if the caller may report for the job there.
using ReportChecker = std::function<absl::StatusOr<std::string>(const std::string& device,
                                                                const std::string& job_id)>;

// Takes a job's reports in, until the client has sent its last or one of them is wrong. Deletes
// itself.
grpc::ServerReadReactor<v1::ReportAllocatorRequest>* TakeReports(
    JobMonitors& monitors, int64_t uid, ReportChecker check,
    v1::ReportAllocatorResponse* response);

// A stream that ends at once.
grpc::ServerReadReactor<v1::ReportAllocatorRequest>* RefuseReports(const grpc::Status& status);

}  // namespace hbmtune::daemon

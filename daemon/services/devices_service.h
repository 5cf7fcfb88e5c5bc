#pragma once

#include "daemon/devices/catalogue.h"
#include "daemon/leases/arbiter.h"
#include "daemon/services/answer.h"
#include "daemon/services/lease_waiters.h"
#include "daemon/services/memory_streams.h"
#include "daemon/store/memory_store.h"
#include "daemon/studies/calibrator.h"
#include "daemon/studies/manager.h"
#include "hbmtune/v1/devices.grpc.pb.h"

namespace hbmtune::daemon {

// hbmtune.v1.Devices: turns messages into calls of the rooms below and back; decides nothing.
class DevicesService final : public v1::Devices::CallbackService {
 public:
  struct Parts {
    const Catalogue& catalogue;
    const StudyManager& studies;
    DeviceArbiter& arbiter;
    GpuGuard& gpus;
    Calibrator& calibrator;
    LeaseWaiters& waiters;
    JobMonitors& monitors;
    MemoryStreams& memory_streams;
    MemoryStore& memory_store;
    const Access& access;
    const Log& log;
    WorkerPool& pool;
  };
  explicit DevicesService(const Parts& parts)
      : parts_(parts), answer_("hbmtune.v1.Devices", parts.access, parts.pool) {}

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* GetDevice(grpc::CallbackServerContext* context,
                                      const v1::GetDeviceRequest* request,
                                      v1::Device* response) override;
  grpc::ServerUnaryReactor* AcquireLease(grpc::CallbackServerContext* context,
                                         const v1::AcquireLeaseRequest* request,
                                         v1::Lease* response) override;
  grpc::ServerUnaryReactor* WaitLease(grpc::CallbackServerContext* context,
                                      const v1::WaitLeaseRequest* request,
                                      v1::Lease* response) override;
  grpc::ServerUnaryReactor* RenewLease(grpc::CallbackServerContext* context,
                                       const v1::RenewLeaseRequest* request,
                                       v1::Lease* response) override;
  grpc::ServerUnaryReactor* ReleaseLease(grpc::CallbackServerContext* context,
                                         const v1::ReleaseLeaseRequest* request,
                                         v1::ReleaseLeaseResponse* response) override;
  grpc::ServerUnaryReactor* Quiesce(grpc::CallbackServerContext* context,
                                    const v1::QuiesceRequest* request,
                                    v1::QuiesceResponse* response) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context,
                                   const v1::ResumeRequest* request,
                                   v1::ResumeResponse* response) override;
  grpc::ServerWriteReactor<v1::CalibrateEvent>* Calibrate(
      grpc::CallbackServerContext* context, const v1::CalibrateRequest* request) override;
  grpc::ServerReadReactor<v1::ReportAllocatorRequest>* ReportAllocator(
      grpc::CallbackServerContext* context, v1::ReportAllocatorResponse* response) override;
  grpc::ServerWriteReactor<v1::MemorySample>* WatchMemory(
      grpc::CallbackServerContext* context, const v1::WatchMemoryRequest* request) override;
  grpc::ServerUnaryReactor* ListMemoryMinutes(grpc::CallbackServerContext* context,
                                              const v1::ListMemoryMinutesRequest* request,
                                              v1::ListMemoryMinutesResponse* response) override;
  grpc::ServerUnaryReactor* ListFindings(grpc::CallbackServerContext* context,
                                         const v1::ListFindingsRequest* request,
                                         v1::ListFindingsResponse* response) override;

 private:
  using Names = google::protobuf::RepeatedPtrField<std::string>;
  // Canonical names; NOT_FOUND for one that is no device.
  absl::StatusOr<std::vector<std::string>> Resolve(const Names& names) const;
  // NOT_FOUND (NO_LEASE), or PERMISSION_DENIED (NOT_OWNER) if it is another user's.
  absl::StatusOr<Lease> LeaseFor(const Caller& caller, const std::string& job_id) const;
  // The device's own name, if the caller may report for a job that runs there.
  absl::StatusOr<std::string> MayReport(const Caller& caller, const std::string& device,
                                        const std::string& job_id) const;
  absl::Status Acquire(const Caller& caller, const v1::AcquireLeaseRequest& request,
                       v1::Lease& response);

  const Parts parts_;
  const Answerer answer_;
};

}  // namespace hbmtune::daemon

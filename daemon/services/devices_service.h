#pragma once

#include "daemon/devices/catalogue.h"
#include "daemon/studies/manager.h"
#include "hbmtune/v1/devices.grpc.pb.h"

namespace hbmtune::daemon {

// hbmtune.v1.Devices.
class DevicesService final : public v1::Devices::CallbackService {
 public:
  DevicesService(const Catalogue& catalogue, const StudyManager& studies)
      : catalogue_(catalogue), studies_(studies) {}

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* GetDevice(grpc::CallbackServerContext* context,
                                      const v1::GetDeviceRequest* request,
                                      v1::Device* response) override;

 private:
  const Catalogue& catalogue_;
  const StudyManager& studies_;
};

}  // namespace hbmtune::daemon

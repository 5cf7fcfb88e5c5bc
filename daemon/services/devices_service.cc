#include "daemon/services/devices_service.h"

#include "daemon/services/answer.h"
#include "daemon/services/messages.h"

namespace hbmtune::daemon {

grpc::ServerUnaryReactor* DevicesService::ListDevices(grpc::CallbackServerContext* context,
                                                      const v1::ListDevicesRequest*,
                                                      v1::ListDevicesResponse* response) {
  return Answer(context, [&] {
    for (const DeviceInfo& device : catalogue_.List()) {
      ToMessage(device, studies_.LoadOf(device.name), *response->add_devices());
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* DevicesService::GetDevice(grpc::CallbackServerContext* context,
                                                    const v1::GetDeviceRequest* request,
                                                    v1::Device* response) {
  return Answer(context, [&]() -> absl::Status {
    auto device = catalogue_.Find(request->name());
    if (!device.ok()) return device.status();
    ToMessage(*device, studies_.LoadOf(device->name), *response);
    return absl::OkStatus();
  });
}

}  // namespace hbmtune::daemon

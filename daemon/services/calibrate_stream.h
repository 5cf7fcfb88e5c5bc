#pragma once

#include <grpcpp/support/server_callback.h>

#include "daemon/studies/calibrator.h"
#include "hbmtune/v1/devices.pb.h"

namespace hbmtune::daemon {

// A stream of its own making, for gRPC: begins a calibration, tells how far it is, the newest only
// when its client is slow, and ends with it; its client gone, the calibration is too.
grpc::ServerWriteReactor<v1::CalibrateEvent>* StreamCalibration(Calibrator& calibrator,
                                                                const Calibrator::Request& request);
// A stream that ends at once.
grpc::ServerWriteReactor<v1::CalibrateEvent>* RefuseCalibration(const grpc::Status& status);

}  // namespace hbmtune::daemon

#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>

#include "daemon/base/clock.h"
#include "daemon/studies/event_hub.h"
#include "hbmtune/v1/tuning.pb.h"

namespace hbmtune::daemon {

// A stream of one study's events, until the study ends (OK), the daemon leaves (UNAVAILABLE) or the
// client goes. Deletes itself.
grpc::ServerWriteReactor<v1::StudyEvent>* StreamEvents(
    std::shared_ptr<Subscription> subscription, const Clock& clock);

// A stream that ends at once.
grpc::ServerWriteReactor<v1::StudyEvent>* RefuseStream(const grpc::Status& status);

}  // namespace hbmtune::daemon

#pragma once

#include <grpcpp/support/server_callback.h>

#include "daemon/services/question.h"
#include "hbmtune/v1/tuning.pb.h"
#include "tuner/sweep/sweep.h"

namespace hbmtune::daemon {

// What a sweep estimates.
struct SweepPlan {
  Question question;
  tuner::ConfigSource source;
  int64_t total = 0;   // configs that the source visits
  bool every = false;  // tell every estimate, not only the front
};

// A stream of its own making, for gRPC: estimates on every core, tells the counts and the front a
// few times a second, and is done when the source is or its client has gone.
grpc::ServerWriteReactor<v1::SweepEvent>* StreamSweep(SweepPlan plan);
// A stream that ends at once.
grpc::ServerWriteReactor<v1::SweepEvent>* RefuseSweep(const grpc::Status& status);

}  // namespace hbmtune::daemon

#include "tuner/verify/verify.h"

#include "daemon/base/errors.h"
#include "daemon/services/tuning_service.h"
#include "proto/convert.h"

namespace hbmtune::daemon {

grpc::ServerUnaryReactor* TuningService::Verify(grpc::CallbackServerContext* context,
                                                const v1::VerifyRequest* request,
                                                v1::Verification* response) {
  return answer_.Later(context, "Verify", [=](const Caller&) -> absl::Status {
    auto verification = tuner::Verify(request->recording_json());
    if (!verification.ok()) return FieldError("recording_json", verification.status());
    ToProto(*verification, *response);
    return absl::OkStatus();
  });
}

}  // namespace hbmtune::daemon

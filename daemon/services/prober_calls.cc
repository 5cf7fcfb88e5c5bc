// The calls by which clients run trials themselves.
#include "daemon/services/tuning_service.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "daemon/base/errors.h"
#include "daemon/services/messages.h"
#include "daemon/services/requests.h"
#include "daemon/studies/client_probes.h"
#include "proto/convert.h"

namespace hbmtune::daemon {
namespace {

Framework FrameworkOf(const StudySession& session) {
  return session.plan().space.workload().framework;
}

constexpr double kRetrySeconds = 1;

absl::StatusOr<std::pair<int64_t, int64_t>> ParseTrial(const std::string& name) {
  if (auto trial = ParseTrialName(name)) return *trial;
  return FieldError("trial", absl::StrCat("'", name, "' names no trial: studies/7/trials/3 does"));
}

absl::Status CheckProber(const std::string& prober) {
  if (!prober.empty() && prober.size() <= 128) return absl::OkStatus();
  return FieldError("prober", "prober must name the caller, in at most 128 bytes: a UUID does");
}

}  // namespace

grpc::ServerUnaryReactor* TuningService::SuggestTrial(grpc::CallbackServerContext* context,
                                                      const v1::SuggestTrialRequest* request,
                                                      v1::SuggestTrialResponse* response) {
  return answer_.Later(context, "SuggestTrial", [=, this](const Caller& caller) {
    return DoSuggest(caller, *request, *response);
  });
}

grpc::ServerUnaryReactor* TuningService::ReportProgress(grpc::CallbackServerContext* context,
                                                        const v1::ReportProgressRequest* request,
                                                        v1::ReportProgressResponse* response) {
  return answer_.Now(context, "ReportProgress", [=, this](const Caller& caller) {
    return DoReport(caller, *request, *response);
  });
}

grpc::ServerUnaryReactor* TuningService::CompleteTrial(grpc::CallbackServerContext* context,
                                                       const v1::CompleteTrialRequest* request,
                                                       v1::Trial* response) {
  return answer_.Later(context, "CompleteTrial", [=, this](const Caller& caller) {
    return DoComplete(caller, *request, *response);
  });
}

absl::StatusOr<std::shared_ptr<StudySession>> TuningService::SessionFor(const Caller& caller,
                                                                        int64_t study_id) {
  auto session = parts_.studies.SessionOf(study_id);
  if (!session.ok()) return session.status();
  if (!caller.MayChange((*session)->Snapshot().owner_uid)) {
    return WithReason(
        absl::PermissionDeniedError(absl::StrCat(
            StudyName(study_id), " is another user's: only he and admins probe for it")),
        "NOT_OWNER");
  }
  if ((*session)->client_probes() == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        StudyName(study_id), " is probed by the daemon: it was not created with client_probes"));
  }
  return session;
}

absl::Status TuningService::DoSuggest(const Caller& caller,
                                      const v1::SuggestTrialRequest& request,
                                      v1::SuggestTrialResponse& response) {
  if (absl::Status status = CheckProber(request.prober()); !status.ok()) return status;
  auto id = ParseStudy(request.study());
  if (!id.ok()) return id.status();
  auto session = SessionFor(caller, *id);
  if (!session.ok()) return session.status();
  auto suggestion = (*session)->client_probes()->Suggest(request.prober());
  if (!suggestion.ok()) return suggestion.status();
  response.set_heartbeat_seconds(absl::ToDoubleSeconds(ClientProbes::kHeartbeat));
  if (suggestion->trial) {
    ToMessage(*suggestion->trial, FrameworkOf(**session), *response.mutable_trial());
  } else if (suggestion->wait) {
    response.set_retry_seconds(kRetrySeconds);
  } else {
    response.set_over(suggestion->why);
  }
  return absl::OkStatus();
}

absl::Status TuningService::DoReport(const Caller& caller,
                                     const v1::ReportProgressRequest& request,
                                     v1::ReportProgressResponse& response) {
  const v1::TrialProgress& progress = request.progress();
  auto trial = ParseTrial(progress.trial());
  if (!trial.ok()) return trial.status();
  auto session = SessionFor(caller, trial->first);
  if (!session.ok()) return session.status();
  auto stop = (*session)->client_probes()->Beat(trial->second, request.prober());
  if (!stop.ok()) return stop.status();
  (*session)->Progress({trial->first, trial->second, progress.step(), progress.step_seconds(),
                        progress.loss(), progress.allocated_bytes(), progress.reserved_bytes()});
  response.set_stop(*stop);
  if (*stop) response.set_why("the study is stopping");
  return absl::OkStatus();
}

absl::Status TuningService::DoComplete(const Caller& caller,
                                       const v1::CompleteTrialRequest& request,
                                       v1::Trial& response) {
  if (absl::Status status = CheckEnums(request); !status.ok()) return status;
  auto trial = ParseTrial(request.trial());
  if (!trial.ok()) return trial.status();
  if (request.measurement().outcome() == v1::OUTCOME_UNSPECIFIED) {
    return FieldError("measurement.outcome", "a result must say how the trial ended");
  }
  // A repeated call finds the trial finished already.
  auto stored = parts_.store.GetTrial(trial->first, trial->second);
  if (stored.ok() && stored->state == TrialState::kFinished) {
    auto study = parts_.studies.Get(trial->first);
    if (!study.ok()) return study.status();
    ToMessage(*stored, study->spec.workload.framework, response);
    return absl::OkStatus();
  }
  auto session = SessionFor(caller, trial->first);
  if (!session.ok()) return session.status();
  auto finished = (*session)->client_probes()->Complete(
      trial->second, request.prober(), FromProto<Measurement>(request.measurement()));
  if (!finished.ok()) return finished.status();
  ToMessage(*finished, FrameworkOf(**session), response);
  return absl::OkStatus();
}

}  // namespace hbmtune::daemon

#include "daemon/services/tuning_service.h"

#include <absl/strings/str_cat.h>

#include <vector>

#include "daemon/base/errors.h"
#include "daemon/services/messages.h"
#include "daemon/services/requests.h"
#include "daemon/services/status.h"
#include "daemon/services/watch_study.h"

namespace hbmtune::daemon {
namespace {

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace

grpc::ServerUnaryReactor* TuningService::CreateStudy(grpc::CallbackServerContext* context,
                                                     const v1::CreateStudyRequest* request,
                                                     v1::Study* response) {
  return answer_.Later(context, "CreateStudy", [=, this](const Caller& caller) -> absl::Status {
    auto spec = ParseStudySpec(*request);
    if (!spec.ok()) return spec.status();
    auto study = parts_.studies.Create(*spec, caller.identity.uid, request->client_request_id());
    if (!study.ok()) return study.status();
    ToMessage(*study, parts_.clock.Now(), *response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* TuningService::GetStudy(grpc::CallbackServerContext* context,
                                                  const v1::GetStudyRequest* request,
                                                  v1::Study* response) {
  return answer_.Now(context, "GetStudy", [&](const Caller&) -> absl::Status {
    auto id = ParseStudy(request->name());
    if (!id.ok()) return id.status();
    auto study = parts_.studies.Get(*id);
    if (!study.ok()) return study.status();
    ToMessage(*study, parts_.clock.Now(), *response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* TuningService::ListStudies(grpc::CallbackServerContext* context,
                                                     const v1::ListStudiesRequest* request,
                                                     v1::ListStudiesResponse* response) {
  return answer_.Now(context, "ListStudies", [&](const Caller&) -> absl::Status {
    auto size = ParsePageSize(request->page_size());
    if (!size.ok()) return size.status();
    auto before = ParsePageToken(request->page_token());
    if (!before.ok()) return before.status();
    auto studies = parts_.studies.List(*before, *size + 1);  // one more: is there a next page?
    if (!studies.ok()) return studies.status();
    const bool more = static_cast<int64_t>(studies->size()) > *size;
    if (more) studies->pop_back();
    for (const StudyRecord& study : *studies) {
      ToMessage(study, parts_.clock.Now(), *response->add_studies());
    }
    if (more) response->set_next_page_token(absl::StrCat(studies->back().id));
    return absl::OkStatus();
  });
}

grpc::ServerWriteReactor<v1::StudyEvent>* TuningService::WatchStudy(
    grpc::CallbackServerContext* context, const v1::WatchStudyRequest* request) {
  if (auto caller = answer_.Check(context, "WatchStudy"); !caller.ok()) {
    return RefuseStream(ToGrpc(caller.status()));
  }
  auto id = ParseStudy(request->name());
  if (!id.ok()) return RefuseStream(ToGrpc(id.status()));
  auto subscription = parts_.studies.Watch(*id);
  if (!subscription.ok()) return RefuseStream(ToGrpc(subscription.status()));
  return StreamEvents(*std::move(subscription), parts_.clock);
}

absl::StatusOr<int64_t> TuningService::MayCancel(const grpc::CallbackServerContext* context,
                                                 const std::string& name) {
  auto caller = answer_.Check(context, "CancelStudy");
  if (!caller.ok()) return caller.status();
  auto id = ParseStudy(name);
  if (!id.ok()) return id.status();
  auto study = parts_.studies.Get(*id);
  if (!study.ok()) return study.status();
  if (caller->MayChange(study->owner_uid)) return *id;
  return WithReason(absl::PermissionDeniedError(absl::StrCat(
                        StudyName(*id), " is another user's: only he and admins cancel it")),
                    "NOT_OWNER");
}

grpc::ServerUnaryReactor* TuningService::CancelStudy(grpc::CallbackServerContext* context,
                                                     const v1::CancelStudyRequest* request,
                                                     v1::Study* response) {
  auto* reactor = context->DefaultReactor();
  auto id = MayCancel(context, request->name());
  if (!id.ok()) {
    reactor->Finish(ToGrpc(id.status()));
    return reactor;
  }
  parts_.studies.Cancel(*id, "cancelled by a client",
                        [this, reactor, response](const absl::StatusOr<StudyRecord>& study) {
                          if (study.ok()) ToMessage(*study, parts_.clock.Now(), *response);
                          reactor->Finish(ToGrpc(study.status()));
                        });
  return reactor;
}

grpc::ServerUnaryReactor* TuningService::ListTrials(grpc::CallbackServerContext* context,
                                                    const v1::ListTrialsRequest* request,
                                                    v1::ListTrialsResponse* response) {
  return answer_.Now(context, "ListTrials", [&](const Caller&) -> absl::Status {
    auto id = ParseStudy(request->parent());
    if (!id.ok()) return id.status();
    auto size = ParsePageSize(request->page_size());
    if (!size.ok()) return size.status();
    auto after = ParsePageToken(request->page_token());
    if (!after.ok()) return after.status();
    auto study = parts_.studies.Get(*id);
    if (!study.ok()) return study.status();
    auto trials = parts_.store.ListTrials(*id, *after, *size + 1);
    if (!trials.ok()) return trials.status();
    const bool more = static_cast<int64_t>(trials->size()) > *size;
    if (more) trials->pop_back();
    const Framework framework = study->spec.workload.framework;
    for (const TrialRecord& trial : *trials) {
      ToMessage(trial, framework, *response->add_trials());
    }
    if (more) response->set_next_page_token(absl::StrCat(trials->back().number));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* TuningService::Recommend(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  const std::string asked = BytesOf(*request);
  const int64_t changes = parts_.store.changes();
  const absl::Duration now = parts_.clock.SinceBoot();
  if (auto kept = kept_.Find(asked, now)) {
    return answer_.Now(context, "Recommend", [&](const Caller&) {
      *response = *kept;
      return absl::OkStatus();
    });
  }
  return answer_.Later(context, "Recommend", [=, this](const Caller&) {
    auto question = DoRecommend(asked, *response);
    if (question.ok()) kept_.Keep(asked, *question, changes, now, *response);
    return question.status();
  });
}

grpc::ServerUnaryReactor* TuningService::Estimate(grpc::CallbackServerContext* context,
                                                  const v1::EstimateRequest* request,
                                                  v1::EstimateResponse* response) {
  return answer_.Later(context, "Estimate", [=, this](const Caller&) {
    return DoEstimate(*request, *response);
  });
}

grpc::ServerUnaryReactor* TuningService::Export(grpc::CallbackServerContext* context,
                                                const v1::ExportRequest* request,
                                                v1::ExportResponse* response) {
  return answer_.Later(context, "Export", [=, this](const Caller&) {
    return DoExport(*request, *response);
  });
}

absl::StatusOr<std::shared_ptr<const Advice>> TuningService::AdviceFor(
    const std::string& study_name) {
  auto id = ParseStudy(study_name);
  if (!id.ok()) return id.status();
  auto study = parts_.studies.Get(*id);
  if (!study.ok()) return study.status();
  return parts_.recommender.ForStudy(*study);
}

absl::StatusOr<std::string> TuningService::DoRecommend(const std::string& asked,
                                                       grpc::ByteBuffer& response) {
  v1::RecommendRequest request;
  if (!request.ParseFromString(asked)) {
    return absl::InternalError("the request is no hbmtune.v1.RecommendRequest");  // as gRPC's own
  }
  if (absl::Status status = CheckEnums(request); !status.ok()) return status;
  absl::StatusOr<std::shared_ptr<const Advice>> advice;
  if (!request.study().empty()) {
    advice = AdviceFor(request.study());
  } else {
    auto workload = ParseWorkload(request.workload(), request.model());
    if (!workload.ok()) return workload.status();
    auto device = parts_.catalogue.Find(request.device());
    if (!device.ok()) return device.status();
    advice = parts_.recommender.ForWorkload(*workload, device->name);
  }
  if (!advice.ok()) return advice.status();
  v1::Recommendation recommendation;
  ToMessage(**advice, recommendation);
  const grpc::Slice bytes(recommendation.SerializeAsString());
  response = grpc::ByteBuffer(&bytes, 1);
  return StudyStore::QuestionOf((*advice)->study.spec);
}

}  // namespace hbmtune::daemon

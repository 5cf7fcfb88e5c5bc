#pragma once

#include <absl/status/statusor.h>

#include "daemon/base/clock.h"
#include "daemon/base/worker_pool.h"
#include "daemon/devices/catalogue.h"
#include "daemon/services/access.h"
#include "daemon/services/answer.h"
#include "daemon/services/kept_answers.h"
#include "daemon/store/study_store.h"
#include "daemon/studies/manager.h"
#include "daemon/studies/recommender.h"
#include "hbmtune/v1/tuning.grpc.pb.h"

namespace hbmtune::daemon {

// hbmtune.v1.Tuning: turns messages into calls of the rooms below and back; decides nothing.
// Recommend is asked again and again for the same: it deals in bytes, so that an answer that is
// kept is neither copied nor serialised.
class TuningService final
    : public v1::Tuning::WithRawCallbackMethod_Recommend<v1::Tuning::CallbackService> {
 public:
  struct Parts {
    StudyManager& studies;
    StudyStore& store;
    Recommender& recommender;
    const Catalogue& catalogue;
    const Access& access;
    const Clock& clock;
    WorkerPool& pool;
  };
  explicit TuningService(const Parts& parts)
      : parts_(parts), answer_("hbmtune.v1.Tuning", parts.access, parts.pool) {}

  grpc::ServerUnaryReactor* CreateStudy(grpc::CallbackServerContext* context,
                                        const v1::CreateStudyRequest* request,
                                        v1::Study* response) override;
  grpc::ServerUnaryReactor* GetStudy(grpc::CallbackServerContext* context,
                                     const v1::GetStudyRequest* request,
                                     v1::Study* response) override;
  grpc::ServerUnaryReactor* ListStudies(grpc::CallbackServerContext* context,
                                        const v1::ListStudiesRequest* request,
                                        v1::ListStudiesResponse* response) override;
  grpc::ServerWriteReactor<v1::StudyEvent>* WatchStudy(
      grpc::CallbackServerContext* context, const v1::WatchStudyRequest* request) override;
  grpc::ServerUnaryReactor* CancelStudy(grpc::CallbackServerContext* context,
                                        const v1::CancelStudyRequest* request,
                                        v1::Study* response) override;
  grpc::ServerUnaryReactor* ListTrials(grpc::CallbackServerContext* context,
                                       const v1::ListTrialsRequest* request,
                                       v1::ListTrialsResponse* response) override;
  grpc::ServerUnaryReactor* SuggestTrial(grpc::CallbackServerContext* context,
                                         const v1::SuggestTrialRequest* request,
                                         v1::SuggestTrialResponse* response) override;
  grpc::ServerUnaryReactor* ReportProgress(grpc::CallbackServerContext* context,
                                           const v1::ReportProgressRequest* request,
                                           v1::ReportProgressResponse* response) override;
  grpc::ServerUnaryReactor* CompleteTrial(grpc::CallbackServerContext* context,
                                          const v1::CompleteTrialRequest* request,
                                          v1::Trial* response) override;
  grpc::ServerUnaryReactor* Recommend(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Estimate(grpc::CallbackServerContext* context,
                                     const v1::EstimateRequest* request,
                                     v1::EstimateResponse* response) override;
  grpc::ServerWriteReactor<v1::SweepEvent>* Sweep(grpc::CallbackServerContext* context,
                                                  const v1::SweepRequest* request) override;
  grpc::ServerUnaryReactor* Verify(grpc::CallbackServerContext* context,
                                   const v1::VerifyRequest* request,
                                   v1::Verification* response) override;
  grpc::ServerUnaryReactor* Export(grpc::CallbackServerContext* context,
                                   const v1::ExportRequest* request,
                                   v1::ExportResponse* response) override;

 private:
  absl::StatusOr<std::shared_ptr<const Advice>> AdviceFor(const std::string& study_name);
  // The question that it answers (StudyStore::QuestionOf).
  absl::StatusOr<std::string> DoRecommend(const std::string& asked, grpc::ByteBuffer& response);
  absl::Status DoEstimate(const v1::EstimateRequest& request, v1::EstimateResponse& response);
  absl::Status DoExport(const v1::ExportRequest& request, v1::ExportResponse& response);

  // The study's id if this caller may cancel it.
  absl::StatusOr<int64_t> MayCancel(const grpc::CallbackServerContext* context,
                                    const std::string& name);
  // The running study whose trials this caller may run.
  absl::StatusOr<std::shared_ptr<StudySession>> SessionFor(const Caller& caller,
                                                           int64_t study_id);
  absl::Status DoSuggest(const Caller& caller, const v1::SuggestTrialRequest& request,
                         v1::SuggestTrialResponse& response);
  absl::Status DoReport(const Caller& caller, const v1::ReportProgressRequest& request,
                        v1::ReportProgressResponse& response);
  absl::Status DoComplete(const Caller& caller, const v1::CompleteTrialRequest& request,
                          v1::Trial& response);

  const Parts parts_;
  KeptAnswers kept_{parts_.store};
  const Answerer answer_;
};

}  // namespace hbmtune::daemon

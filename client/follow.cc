#include "client/follow.h"

#include <grpcpp/completion_queue.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "client/interrupt.h"

namespace hbmtune::client {
namespace {

using Clock = ProgressView::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{100};
constexpr std::chrono::seconds kMostAbsence{10};
// Two interruptions may come in one tick: so long a cancel has to reach the daemon, which answers
// it only when the trial has stopped.
constexpr milliseconds kSendingTime{300};

// One WatchStudy stream, and the CancelStudy that an interruption starts beside it, driven by one
// queue so that time and interruptions are seen while nothing arrives.
class Watch {
 public:
  Watch(const Connection& connection, std::string study, OnInterrupt on_interrupt,
        ProgressView& view)
      : connection_(connection), study_(std::move(study)), on_interrupt_(on_interrupt),
        view_(view) {}

  // Until the stream ends: the last state of the study that it told, or its error.
  absl::StatusOr<v1::Study> Run();

  bool heard_anything() const { return last_.has_value(); }

 private:
  enum Tag : intptr_t { kStart, kRead, kFinish, kCancel };

  static void* Mark(Tag tag) { return reinterpret_cast<void*>(tag); }
  void Start();
  void Handle(Tag tag, bool ok);
  void Take(const v1::StudyEvent& event);
  void OnInterrupted();
  void Cancel();
  void Leave();

  const Connection& connection_;
  const std::string study_;
  const OnInterrupt on_interrupt_;
  ProgressView& view_;

  grpc::CompletionQueue queue_;
  grpc::ClientContext watch_context_;
  std::unique_ptr<grpc::ClientAsyncReaderInterface<v1::StudyEvent>> reader_;
  v1::StudyEvent event_;
  grpc::Status watch_status_;
  bool watching_ = true;
  bool left_ = false;

  grpc::ClientContext cancel_context_;
  std::unique_ptr<grpc::ClientAsyncResponseReaderInterface<v1::Study>> canceller_;
  v1::Study cancelled_;
  grpc::Status cancel_status_;
  bool cancelling_ = false;
  Clock::time_point cancel_time_;

  std::optional<v1::Study> last_;
};

absl::StatusOr<v1::Study> Watch::Run() {
  Start();
  while (watching_ || cancelling_) {
    if (Interrupted()) OnInterrupted();
    void* tag = nullptr;
    bool ok = false;
    auto next = queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kTick);
    if (next == grpc::CompletionQueue::GOT_EVENT) {
      Handle(static_cast<Tag>(reinterpret_cast<intptr_t>(tag)), ok);
    } else {
      view_.Tick(Clock::now());
    }
  }
  queue_.Shutdown();
  void* tag = nullptr;
  for (bool ok = false; queue_.Next(&tag, &ok);) {
  }
  if (left_) {
    return absl::AbortedError(canceller_ ? "interrupted; the study is being cancelled"
                                         : "interrupted; the study goes on");
  }
  // A cancel that could not be stored at once may have been since.
  const bool ended = last_ && HasEnded(*last_);
  if (canceller_ && !cancel_status_.ok() && !ended) return FromGrpc(cancel_status_);
  if (!watch_status_.ok()) return FromGrpc(watch_status_);
  if (!last_) return absl::InternalError("the daemon ended the stream without a word");
  return *last_;
}

void Watch::Start() {
  v1::WatchStudyRequest request;
  request.set_name(study_);
  reader_ = connection_.tuning().PrepareAsyncWatchStudy(&watch_context_, request, &queue_);
  reader_->StartCall(Mark(kStart));
}

void Watch::Handle(Tag tag, bool ok) {
  if (tag == kFinish) {
    watching_ = false;
  } else if (tag == kCancel) {
    cancelling_ = false;
    if (cancel_status_.ok()) last_ = cancelled_;
  } else if (!ok) {
    reader_->Finish(&watch_status_, Mark(kFinish));
  } else {
    if (tag == kRead) Take(event_);
    reader_->Read(&event_, Mark(kRead));
  }
}

void Watch::Take(const v1::StudyEvent& event) {
  switch (event.event_case()) {
    case v1::StudyEvent::kStudy:
      last_ = event.study();
      view_.OnStudy(*last_, Clock::now());
      break;
    case v1::StudyEvent::kTrialFinished: view_.OnTrialFinished(event.trial_finished()); break;
    case v1::StudyEvent::kTrialProgress:
      view_.OnTrialProgress(event.trial_progress(), Clock::now());
      break;
    default: break;
  }
}

void Watch::OnInterrupted() {
  if (on_interrupt_ == OnInterrupt::kLeave) {
    Leave();
  } else if (!canceller_) {
    Cancel();
  } else if (InterruptedTwice() && Clock::now() - cancel_time_ >= kSendingTime) {
    Leave();
  }
}

void Watch::Leave() {
  left_ = true;
  watch_context_.TryCancel();
  cancel_context_.TryCancel();
}

void Watch::Cancel() {
  view_.SetNotice("cancelling (Ctrl-C again to leave at once)");
  v1::CancelStudyRequest request;
  request.set_name(study_);
  cancelling_ = true;
  cancel_time_ = Clock::now();
  canceller_ = connection_.tuning().AsyncCancelStudy(&cancel_context_, request, &queue_);
  canceller_->Finish(&cancelled_, &cancel_status_, Mark(kCancel));
}

}  // namespace

absl::StatusOr<v1::Study> FollowStudy(const Connection& connection, const std::string& study,
                                      OnInterrupt on_interrupt, ProgressView& view) {
  auto last_heard = Clock::now();
  while (true) {
    Watch watch(connection, study, on_interrupt, view);
    absl::StatusOr<v1::Study> result = watch.Run();
    bool ended = result.ok() && HasEnded(*result);
    bool gone = absl::IsUnavailable(result.status()) || (result.ok() && !ended);
    if (!gone) return result;
    if (watch.heard_anything()) last_heard = Clock::now();
    if (Interrupted()) {
      return absl::AbortedError("interrupted, and the daemon is away: " + study +
                                " may go on when it is back; hbmtune cancel ends it then");
    }
    if (Clock::now() - last_heard > kMostAbsence) {
      const std::string why = result.ok() ? "the daemon is gone"
                                          : std::string(result.status().message());
      return absl::UnavailableError(why + "; " + study + " goes on when it is back");
    }
    view.SetNotice("the daemon is gone; waiting for it");
    view.Tick(Clock::now());
    std::this_thread::sleep_for(kTick);
    view.SetNotice("");
  }
}

}  // namespace hbmtune::client

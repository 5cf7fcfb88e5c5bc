#include "daemon/services/watch_study.h"

#include <mutex>
#include <variant>

#include "daemon/services/messages.h"

namespace hbmtune::daemon {
namespace {

class EventStream final : public grpc::ServerWriteReactor<v1::StudyEvent> {
 public:
  EventStream(std::shared_ptr<Subscription> subscription, const Clock& clock)
      : subscription_(std::move(subscription)), clock_(clock) {
    subscription_->SetNotify([this] { Pump(); });
  }

  void OnWriteDone(bool ok) override {
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
    }
    if (!ok) return Close(grpc::Status(grpc::StatusCode::CANCELLED, "the client went away"));
    Pump();
  }
  void OnCancel() override {
    Close(grpc::Status(grpc::StatusCode::CANCELLED, "the client went away"));
  }
  void OnDone() override {
    subscription_->SetNotify({});  // waits for a call that is running
    delete this;
  }

 private:
  // Starts the next write unless one is running. Any thread.
  void Pump() {
    std::lock_guard lock(mutex_);
    if (writing_ || finished_) return;
    auto item = subscription_->Pop();
    if (!item) {
      if (subscription_->exhausted()) FinishLocked(EndStatus());
      return;
    }
    message_.Clear();
    ToMessage(*item->event, clock_.Now(), message_);
    message_.set_missed(item->missed);
    const auto* study = std::get_if<StudyRecord>(item->event.get());
    study_ended_ = study != nullptr && study->ended();
    writing_ = true;
    StartWrite(&message_);
  }

  grpc::Status EndStatus() const {
    if (study_ended_) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is leaving");
  }
  void Close(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    FinishLocked(status);
  }
  void FinishLocked(const grpc::Status& status) {
    if (finished_) return;
    finished_ = true;
    Finish(status);
  }

  const std::shared_ptr<Subscription> subscription_;
  const Clock& clock_;
  std::mutex mutex_;
  v1::StudyEvent message_;     // of the running write
  bool writing_ = false;       // guarded by mutex_
  bool finished_ = false;      // guarded by mutex_
  bool study_ended_ = false;   // guarded by mutex_
};

class RefusedStream final : public grpc::ServerWriteReactor<v1::StudyEvent> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerWriteReactor<v1::StudyEvent>* StreamEvents(
    std::shared_ptr<Subscription> subscription, const Clock& clock) {
  return new EventStream(std::move(subscription), clock);
}

grpc::ServerWriteReactor<v1::StudyEvent>* RefuseStream(const grpc::Status& status) {
  return new RefusedStream(status);
}

}  // namespace hbmtune::daemon

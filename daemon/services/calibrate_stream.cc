#include "daemon/services/calibrate_stream.h"

#include <absl/synchronization/mutex.h>

#include <memory>
#include <optional>
#include <utility>

#include "daemon/services/status.h"

namespace hbmtune::daemon {
namespace {

class CalibrationStream final : public grpc::ServerWriteReactor<v1::CalibrateEvent> {
 public:
  CalibrationStream(Calibrator& calibrator, const Calibrator::Request& request) {
    absl::Status status = calibrator.Start(
        request, cancellation_,
        {[link = link_](double done_ratio, const std::string& what) {
           v1::CalibrateEvent event;
           event.set_done_ratio(done_ratio);
           event.set_what(what);
           absl::MutexLock lock(&link->mutex);
           if (link->stream != nullptr) link->stream->Tell(event);
         },
         [link = link_](const absl::StatusOr<std::string>& profile) {
           absl::MutexLock lock(&link->mutex);
           if (link->stream != nullptr) link->stream->TellEnd(profile);
         }});
    absl::MutexLock lock(&link_->mutex);
    if (!status.ok()) TellEnd(status);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&link_->mutex);
    writing_ = false;
    if (!ok) cancellation_->Cancel();
    Pump();
  }
  // The call ends when the probe has.
  void OnCancel() override { cancellation_->Cancel(); }
  void OnDone() override {
    {
      absl::MutexLock lock(&link_->mutex);
      link_->stream = nullptr;
    }
    delete this;
  }

 private:
  // What the calibrator's thread holds of the stream, for as long as there is one.
  struct Link {
    explicit Link(CalibrationStream* of) : stream(of) {}
    absl::Mutex mutex;
    CalibrationStream* stream;
  };

  // All with the link's mutex held.
  void Tell(const v1::CalibrateEvent& event) {
    next_ = event;
    Pump();
  }
  void TellEnd(const absl::StatusOr<std::string>& profile) {
    end_ = ToGrpc(profile.status());
    if (profile.ok()) {
      next_.emplace();
      next_->set_done_ratio(1);
      next_->set_profile_toml(*profile);
    }
    Pump();
  }
  void Pump() {
    if (writing_ || finished_) return;
    if (next_) {
      message_ = *std::exchange(next_, std::nullopt);
      writing_ = true;
      return StartWrite(&message_);
    }
    if (!end_) return;
    finished_ = true;
    Finish(*end_);
  }

  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  const std::shared_ptr<Link> link_ = std::make_shared<Link>(this);
  v1::CalibrateEvent message_;  // of the running write
  std::optional<v1::CalibrateEvent> next_;
  std::optional<grpc::Status> end_;
  bool writing_ = false;
  bool finished_ = false;
};

class RefusedStream final : public grpc::ServerWriteReactor<v1::CalibrateEvent> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerWriteReactor<v1::CalibrateEvent>* StreamCalibration(
    Calibrator& calibrator, const Calibrator::Request& request) {
  return new CalibrationStream(calibrator, request);
}

grpc::ServerWriteReactor<v1::CalibrateEvent>* RefuseCalibration(const grpc::Status& status) {
  return new RefusedStream(status);
}

}  // namespace hbmtune::daemon

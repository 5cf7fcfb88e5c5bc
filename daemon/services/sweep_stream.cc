#include "daemon/services/sweep_stream.h"

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/clock.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "proto/convert.h"

namespace hbmtune::daemon {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(100);
// Estimates that wait for a slow reader; then the sweep waits too.
constexpr int kMostUntold = 256;

class SweepStream final : public grpc::ServerWriteReactor<v1::SweepEvent> {
 public:
  explicit SweepStream(SweepPlan plan) : plan_(std::move(plan)), start_(absl::Now()) {
    ToProto(plan_.question.workload, *next_.mutable_workload());
  }

  // Once, when gRPC has the stream: OnDone may come at any time after.
  void Start() {
    std::thread([this] { Run(); }).detach();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    stopped_ = stopped_ || !ok;
    if (!done_) return;
    // The thread that sweeps has left: what is told from here on is the rest.
    told_end_ ? FinishLocked() : WriteLocked();
  }
  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  void OnDone() override { delete this; }

 private:
  void Run() {
    const Question& q = plan_.question;
    const tuner::Estimator estimator =
        [&q](const TrainConfig& config) -> absl::StatusOr<Estimate> {
      if (absl::Status legal = tuner::Validate(q.workload, config); !legal.ok()) return legal;
      return Ask(q, q.workload, config);
    };
    tuner::EstimateAll(plan_.source, estimator, std::thread::hardware_concurrency(),
                       [this](const TrainConfig& config, const absl::StatusOr<Estimate>& e) {
                         return Take(config, e);
                       });
    absl::MutexLock lock(&mutex_);
    done_ = true;
    if (!writing_) WriteLocked();
  }

  bool Take(const TrainConfig& config, const absl::StatusOr<Estimate>& estimate) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &SweepStream::HasRoom));
    if (stopped_) return false;
    if (estimate.ok()) {
      Count({config, *estimate});
    } else if (absl::IsOutOfRange(estimate.status())) {
      ++estimated_;  // it fits nowhere, and there are no figures of it
    } else {
      if (refused_++ == 0) refusal_ = std::string(estimate.status().message());
    }
    if (!writing_ && absl::Now() - written_ >= kPeriod) WriteLocked();
    return true;
  }
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return next_.estimates_size() < kMostUntold || !writing_ || stopped_;
  }

  void Count(const tuner::SweptConfig& swept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++estimated_;
    fitting_ += swept.estimate.fits;
    front_changed_ = front_.Add(swept) || front_changed_;
    if (!least_ || swept.estimate.peak_used_bytes < least_->estimate.peak_used_bytes) {
      least_ = swept;
    }
    if (plan_.every) ToProto(swept, *next_.add_estimates());
    if (next_.estimates_size() >= kMostUntold && !writing_) WriteLocked();
  }

  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    next_.set_total(plan_.total);
    next_.set_estimated(estimated_);
    next_.set_fitting(fitting_);
    next_.set_refused(refused_);
    next_.set_refusal(refusal_);
    next_.set_elapsed_seconds(absl::ToDoubleSeconds(absl::Now() - start_));
    next_.set_front_changed(std::exchange(front_changed_, false));
    if (next_.front_changed()) {
      for (const auto& swept : front_.Sorted()) ToProto(swept, *next_.add_front());
    }
    if (fitting_ == 0 && least_) ToProto(*least_, *next_.mutable_least());
    written_ = absl::Now();
    writing_ = true;
    told_end_ = done_;
    message_.Swap(&next_);
    next_.Clear();
    StartWrite(&message_);
  }

  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Finish(stopped_ ? grpc::Status(grpc::StatusCode::CANCELLED, "the client went away")
                    : grpc::Status::OK);
  }

  const SweepPlan plan_;
  const absl::Time start_;
  absl::Mutex mutex_;
  v1::SweepEvent message_;  // of the running write
  v1::SweepEvent next_ ABSL_GUARDED_BY(mutex_);
  tuner::ParetoFront front_ ABSL_GUARDED_BY(mutex_);
  std::optional<tuner::SweptConfig> least_ ABSL_GUARDED_BY(mutex_);
  std::string refusal_ ABSL_GUARDED_BY(mutex_);
  int64_t estimated_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t fitting_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time written_ ABSL_GUARDED_BY(mutex_);
  bool front_changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;   // nobody listens any more
  bool done_ ABSL_GUARDED_BY(mutex_) = false;      // the sweep is over
  bool told_end_ ABSL_GUARDED_BY(mutex_) = false;  // and its last event is written
};

class RefusedStream final : public grpc::ServerWriteReactor<v1::SweepEvent> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerWriteReactor<v1::SweepEvent>* StreamSweep(SweepPlan plan) {
  auto* stream = new SweepStream(std::move(plan));
  stream->Start();
  return stream;
}

grpc::ServerWriteReactor<v1::SweepEvent>* RefuseSweep(const grpc::Status& status) {
  return new RefusedStream(status);
}

}  // namespace hbmtune::daemon

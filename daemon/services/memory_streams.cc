#include "daemon/services/memory_streams.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/convert.h"

namespace hbmtune::daemon {
namespace {

class RefusedStream final : public grpc::ServerWriteReactor<v1::MemorySample> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

class MemoryStreams::Stream final : public grpc::ServerWriteReactor<v1::MemorySample> {
 public:
  Stream(MemoryStreams& home, std::string device, absl::Duration period)
      : home_(home), device_(std::move(device)), period_(period),
        due_(home.clock_.SinceBoot()) {}

  // Sends what is due or new; returns when the next sample is due. The home's thread.
  absl::Duration Look(absl::Duration now) {
    absl::MutexLock lock(&mutex_);
    if (finished_) return absl::InfiniteDuration();
    const bool due = now >= due_;
    // From now, not from when it was due: a machine that slept owes no samples.
    if (due) due_ = now + period_;
    auto findings = home_.monitors_.FindingsSince(told_, device_);
    if (!due && findings.empty()) return due_;
    if (!writing_) {
      Write(findings);
    } else if (due) {
      ++missed_;
    }
    return due_;
  }

  void Close(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(finished_, true)) Finish(status);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return OnCancel();
    absl::MutexLock lock(&mutex_);
    writing_ = false;
  }
  void OnCancel() override {
    Close(grpc::Status(grpc::StatusCode::CANCELLED, "the client went away"));
  }
  void OnDone() override {
    home_.Remove(this);
    delete this;
  }

 private:
  void Write(const std::vector<JobFinding>& findings) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    message_.Clear();
    message_.set_device(device_);
    *message_.mutable_sample_time() = google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(
        absl::ToUnixMicros(home_.clock_.Now()));
    const DriverMemory driver = home_.monitors_.Driver(device_);
    if (driver.used_bytes) message_.set_used_bytes(*driver.used_bytes);
    if (driver.total_bytes) message_.set_total_bytes(*driver.total_bytes);
    for (const JobMemory& job : home_.monitors_.Jobs(device_)) {
      v1::JobMemory& told = *message_.add_jobs();
      told.set_job_id(job.job_id);
      ToProto(job.report, *told.mutable_report());
      ToProto(job.state, *told.mutable_state());
    }
    for (const JobFinding& finding : findings) {
      v1::JobFinding& told = *message_.add_findings();
      told.set_job_id(finding.job_id);
      ToProto(finding.finding, *told.mutable_finding());
      told_ = finding.sequence;
    }
    message_.set_missed(std::exchange(missed_, 0));
    writing_ = true;
    StartWrite(&message_);
  }

  MemoryStreams& home_;
  const std::string device_;
  const absl::Duration period_;
  absl::Duration due_;  // used by Look only
  absl::Mutex mutex_;
  v1::MemorySample message_;  // of the running write
  int64_t told_ ABSL_GUARDED_BY(mutex_) = 0;  // the last finding's sequence
  int64_t missed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

MemoryStreams::MemoryStreams(const JobMonitors& monitors, const Clock& clock)
    : monitors_(monitors), clock_(clock), thread_([this] { Run(); }) {}

MemoryStreams::~MemoryStreams() {
  Close();
  thread_.join();
}

grpc::ServerWriteReactor<v1::MemorySample>* MemoryStreams::Open(const std::string& device,
                                                                absl::Duration period) {
  auto* stream = new Stream(*this, device, period);
  absl::MutexLock lock(&mutex_);
  if (closing_) {
    stream->Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is leaving"));
  }
  streams_.insert(stream);
  woken_ = true;
  return stream;
}

grpc::ServerWriteReactor<v1::MemorySample>* MemoryStreams::Refuse(const grpc::Status& status) {
  return new RefusedStream(status);
}

void MemoryStreams::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
}

void MemoryStreams::Close() {
  absl::MutexLock lock(&mutex_);
  closing_ = true;
  for (Stream* stream : streams_) {
    stream->Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is leaving"));
  }
}

void MemoryStreams::Remove(Stream* stream) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
}

void MemoryStreams::Run() {
  absl::MutexLock lock(&mutex_);
  absl::Duration next = absl::InfiniteDuration();
  while (!closing_) {
    mutex_.AwaitWithTimeout(absl::Condition(this, &MemoryStreams::Awake),
                            next - clock_.SinceBoot());
    woken_ = false;
    next = absl::InfiniteDuration();
    const absl::Duration now = clock_.SinceBoot();
    for (Stream* stream : streams_) {
      if (closing_) return;
      next = std::min(next, stream->Look(now));
    }
  }
}

}  // namespace hbmtune::daemon

#include "daemon/studies/device_queue.h"

#include <algorithm>

#include "daemon/studies/client_probes.h"

namespace hbmtune::daemon {

DeviceQueue::DeviceQueue(Callbacks callbacks)
    : callbacks_(std::move(callbacks)), thread_([this] { Run(); }) {}

DeviceQueue::~DeviceQueue() {
  Drain();
  thread_.join();
}

void DeviceQueue::Enqueue(int64_t study_id) {
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(study_id);
}

DeviceQueue::Found DeviceQueue::Remove(int64_t study_id, const std::string& why) {
  absl::MutexLock lock(&mutex_);
  if (running_id_ == study_id) {
    stop_->Set(StopReason::kCancel, why);
    return Found::kRunning;
  }
  auto place = std::find(waiting_.begin(), waiting_.end(), study_id);
  if (place == waiting_.end()) return Found::kNo;
  waiting_.erase(place);
  return Found::kWaiting;
}

std::shared_ptr<StudySession> DeviceQueue::RunningSession() const {
  absl::MutexLock lock(&mutex_);
  return session_;
}

std::optional<StudyRecord> DeviceQueue::Running() const {
  auto session = RunningSession();
  if (session == nullptr) return std::nullopt;
  return session->Snapshot();
}

DeviceQueue::Order DeviceQueue::order() const {
  absl::MutexLock lock(&mutex_);
  return {running_id_, {waiting_.begin(), waiting_.end()}};
}

void DeviceQueue::InterruptTrial() {
  absl::MutexLock lock(&mutex_);
  if (stop_ != nullptr) stop_->InterruptTrial();
  if (session_ == nullptr || session_->client_probes() == nullptr) return;
  session_->client_probes()->Interrupt();
}

void DeviceQueue::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  if (stop_ != nullptr) stop_->Set(StopReason::kDrain, "the daemon leaves");
}

void DeviceQueue::Run() {
  for (;;) {
    int64_t study_id = 0;
    {
      absl::MutexLock lock(&mutex_);
      auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return draining_ || !waiting_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (draining_) return;
      study_id = running_id_ = waiting_.front();
      waiting_.pop_front();
      stop_ = std::make_shared<StopRequest>();
    }
    RunOne(study_id);
    {
      absl::MutexLock lock(&mutex_);
      running_id_ = 0;
      session_ = nullptr;
      stop_ = nullptr;
    }
    callbacks_.left(study_id);
  }
}

void DeviceQueue::RunOne(int64_t study_id) {
  auto opened = callbacks_.open(study_id);
  if (!opened.ok()) return callbacks_.failed_to_open(study_id, opened.status());
  std::shared_ptr<StudySession> session = *std::move(opened);
  std::shared_ptr<StopRequest> stop;
  {
    absl::MutexLock lock(&mutex_);
    session_ = session;
    stop = stop_;
  }
  callbacks_.run(*session, *stop);
}

}  // namespace hbmtune::daemon

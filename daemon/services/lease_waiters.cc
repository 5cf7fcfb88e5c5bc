#include "daemon/services/lease_waiters.h"

#include <absl/time/clock.h>

#include <utility>

namespace hbmtune::daemon {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50);

}  // namespace

LeaseWaiters::LeaseWaiters(DeviceArbiter& arbiter)
    : arbiter_(arbiter), thread_([this] { Run(); }) {}

LeaseWaiters::~LeaseWaiters() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  thread_.join();
  for (const Waiter& waiter : waiters_) {
    waiter.done(absl::UnavailableError("the daemon is leaving"));
  }
}

void LeaseWaiters::Add(const std::string& job_id, GaveUp gave_up, Done done) {
  absl::MutexLock lock(&mutex_);
  waiters_.push_back({job_id, std::move(gave_up), std::move(done)});
}

void LeaseWaiters::Run() {
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      // Sleeps without waking up while nobody waits.
      auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closing_ || !waiters_.empty();
      };
      mutex_.Await(absl::Condition(&awake));
      if (mutex_.AwaitWithTimeout(absl::Condition(&closing_), kLook)) return;
    }
    Look();
  }
}

void LeaseWaiters::Look() {
  std::list<Waiter> waiting;
  {
    absl::MutexLock lock(&mutex_);
    waiting.swap(waiters_);
  }
  for (auto waiter = waiting.begin(); waiter != waiting.end();) {
    absl::Status status = arbiter_.Wait(waiter->job_id, absl::Now());
    const bool over = !absl::IsDeadlineExceeded(status);
    if (over || waiter->gave_up()) {
      waiter->done(status);
      waiter = waiting.erase(waiter);
    } else {
      ++waiter;
    }
  }
  absl::MutexLock lock(&mutex_);
  waiters_.splice(waiters_.end(), waiting);
}

}  // namespace hbmtune::daemon

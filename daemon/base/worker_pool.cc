#include "daemon/base/worker_pool.h"

#include <utility>

namespace hbmtune::daemon {

WorkerPool::WorkerPool(size_t threads) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkerPool::~WorkerPool() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Post(std::function<void()> job) {
  absl::MutexLock lock(&mutex_);
  jobs_.push_back(std::move(job));
}

void WorkerPool::Run() {
  for (;;) {
    std::function<void()> job;
    {
      absl::MutexLock lock(&mutex_);
      auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closing_ || !jobs_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace hbmtune::daemon

#include "kernels/device/host/stream_thread.h"

namespace hbmtune::device {

StreamThread::StreamThread() : thread_([this] { Loop(); }) {}

StreamThread::~StreamThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    tasks_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

int64_t StreamThread::Enqueue(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
  return ++enqueued_;
}

bool StreamThread::Done(int64_t ticket) {
  std::lock_guard lock(mutex_);
  return completed_ >= ticket;
}

void StreamThread::Wait(int64_t ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= ticket || failure_ != nullptr; });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

int64_t StreamThread::last_ticket() {
  std::lock_guard lock(mutex_);
  return enqueued_;
}

void StreamThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      task();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    ++completed_;
    if (failure != nullptr) {
      failure_ = failure;
      stopping_ = true;
    }
    changed_.notify_all();
  }
}

}  // namespace hbmtune::device

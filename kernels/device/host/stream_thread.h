#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace hbmtune::device {

// A stream of the host device beside the compute stream: a thread that runs tasks in order. The
// first exception stops it: later tasks are dropped, and every wait rethrows it.
class StreamThread {
 public:
  StreamThread();
  // Drops what has not begun; waits for what has.
  ~StreamThread();
  StreamThread(const StreamThread&) = delete;
  StreamThread& operator=(const StreamThread&) = delete;

  // Returns the task's ticket, counted from 1.
  int64_t Enqueue(std::function<void()> task);
  // Whether the task with that ticket, and so every one before it, has ended.
  bool Done(int64_t ticket);
  void Wait(int64_t ticket);
  // The ticket of the latest task, 0 before the first.
  int64_t last_ticket();

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_, as is all below
  int64_t enqueued_ = 0;
  int64_t completed_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace hbmtune::device

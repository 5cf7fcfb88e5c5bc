#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "tuner/sweep/sweep.h"

namespace hbmtune::tuner {
namespace {

// Configs that follow each other often share a Program: a thread takes a handful at once.
constexpr size_t kBatch = 16;
constexpr size_t kMostWaiting = 8;  // batches

class Crew {
 public:
  Crew(const Estimator& estimator, const Take& take) : estimator_(estimator), take_(take) {}

  // False when there is no point in going on.
  bool Post(std::vector<TrainConfig> batch) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return waiting_.size() < kMostWaiting || stopped_; });
    waiting_.push_back(std::move(batch));
    work_.notify_one();
    return !stopped_;
  }

  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    work_.notify_all();
  }

  void Work() {
    while (auto batch = Pop()) {
      for (const TrainConfig& config : *batch) {
        absl::StatusOr<Estimate> estimate = estimator_(config);
        std::lock_guard lock(taking_);
        if (stopped_) return;
        if (!take_(config, estimate)) return Stop();
      }
    }
  }

 private:
  std::optional<std::vector<TrainConfig>> Pop() {
    std::unique_lock lock(mutex_);
    work_.wait(lock, [this] { return !waiting_.empty() || closed_ || stopped_; });
    if (waiting_.empty() || stopped_) return std::nullopt;
    std::vector<TrainConfig> batch = std::move(waiting_.front());
    waiting_.pop_front();
    room_.notify_one();
    return batch;
  }

  void Stop() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    room_.notify_all();
    work_.notify_all();
  }

  const Estimator& estimator_;
  const Take& take_;
  std::mutex taking_;  // one call of take_ at a time
  std::mutex mutex_;   // of what follows
  std::condition_variable work_, room_;
  std::deque<std::vector<TrainConfig>> waiting_;
  bool closed_ = false;
  std::atomic<bool> stopped_ = false;  // written under mutex_
};

}  // namespace

void EstimateAll(const ConfigSource& source, const Estimator& estimator, size_t threads,
                 const Take& take) {
  Crew crew(estimator, take);
  std::vector<std::thread> workers;
  for (size_t i = 0; i < std::max<size_t>(1, threads); ++i) {
    workers.emplace_back([&crew] { crew.Work(); });
  }
  std::vector<TrainConfig> batch;
  source([&](const TrainConfig& config) {
    batch.push_back(config);
    return batch.size() < kBatch || crew.Post(std::exchange(batch, {}));
  });
  if (!batch.empty()) crew.Post(std::move(batch));
  crew.Close();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace hbmtune::tuner

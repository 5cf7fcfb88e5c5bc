#include "daemon/smi/smi_feed.h"

#include <utility>

namespace hbmtune::daemon {

SmiFeed::SmiFeed(const Clock& clock, SmiHelper::Options options, MayAsk may_ask, const Log& log,
                 absl::Duration period)
    : helper_(clock, std::move(options)),
      may_ask_(std::move(may_ask)),
      log_(log),
      period_(period),
      thread_([this] { Run(); }) {}

SmiFeed::~SmiFeed() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void SmiFeed::Run() {
  for (;;) {
    if (may_ask_()) {
      Ask();
    } else {
      helper_.Stop();
      absl::MutexLock lock(&mutex_);
      samples_.clear();
      up_ = false;
    }
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), period_)) return;
  }
}

void SmiFeed::Ask() {
  auto samples = helper_.Sample();
  absl::MutexLock lock(&mutex_);
  up_ = samples.ok();
  if (samples.ok()) {
    samples_ = *std::move(samples);
    told_ = false;
    return;
  }
  samples_.clear();
  if (!told_) {
    log_.Warning("the ROCm SMI library gives no figures; those of sysfs go on",
                 {{"error", samples.status()}});
  }
  told_ = true;
}

std::vector<SmiSample> SmiFeed::Samples() const {
  absl::MutexLock lock(&mutex_);
  return samples_;
}

bool SmiFeed::up() const {
  absl::MutexLock lock(&mutex_);
  return up_;
}

}  // namespace hbmtune::daemon

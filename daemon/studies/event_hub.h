#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "daemon/studies/study.h"

namespace hbmtune::daemon {

struct TrialStarted {
  TrialRecord trial;
  Framework framework;  // of its study
};
struct TrialFinished {
  TrialRecord trial;
  Framework framework;
};
using StudyEvent = std::variant<StudyRecord, TrialStarted, TrialFinished, TrialProgress>;

// One reader's queue. It never makes the writer wait: what does not fit is counted instead.
class Subscription {
 public:
  static constexpr size_t kCapacity = 256;

  struct Item {
    std::shared_ptr<const StudyEvent> event;
    int64_t missed = 0;  // events lost just before this one
  };
  // The oldest event; nothing when there is none now. Reader's thread.
  std::optional<Item> Pop() ABSL_LOCKS_EXCLUDED(mutex_);
  // True when nothing will come any more.
  bool exhausted() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Called by a writer's thread whenever something came or the end did; must be quick. Called once
  // at once. An empty function ends it: afterwards no call is running.
  void SetNotify(std::function<void()> notify) ABSL_LOCKS_EXCLUDED(mutex_, notify_mutex_);

 private:
  friend class EventHub;
  void Push(std::shared_ptr<const StudyEvent> event, bool last)
      ABSL_LOCKS_EXCLUDED(mutex_, notify_mutex_);

  mutable absl::Mutex mutex_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  int64_t missed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Mutex notify_mutex_;
  std::function<void()> notify_ ABSL_GUARDED_BY(notify_mutex_);
};

// Carries what happens in studies to whoever watches them. Any thread.
class EventHub {
 public:
  std::shared_ptr<Subscription> Subscribe(int64_t study_id) ABSL_LOCKS_EXCLUDED(mutex_);
  void Publish(int64_t study_id, StudyEvent event) ABSL_LOCKS_EXCLUDED(mutex_);
  // The last event of a study: it reaches every reader, then the subscriptions are over.
  void End(const StudyRecord& study) ABSL_LOCKS_EXCLUDED(mutex_);
  // All subscriptions are over: the daemon leaves.
  void EndAll() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Readers = std::vector<std::weak_ptr<Subscription>>;
  std::vector<std::shared_ptr<Subscription>> ReadersOf(int64_t study_id)
      ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  std::map<int64_t, Readers> readers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon

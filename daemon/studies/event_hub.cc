#include "daemon/studies/event_hub.h"

#include <utility>

namespace hbmtune::daemon {

std::optional<Subscription::Item> Subscription::Pop() {
  absl::MutexLock lock(&mutex_);
  if (items_.empty()) return std::nullopt;
  Item item = std::move(items_.front());
  items_.pop_front();
  return item;
}

bool Subscription::exhausted() const {
  absl::MutexLock lock(&mutex_);
  return ended_ && items_.empty();
}

void Subscription::SetNotify(std::function<void()> notify) {
  absl::MutexLock lock(&notify_mutex_);
  notify_ = std::move(notify);
  if (notify_) notify_();
}

void Subscription::Push(std::shared_ptr<const StudyEvent> event, bool last) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = last;
    const bool full = items_.size() >= kCapacity;
    if (full) ++missed_;
    if (full && last) items_.pop_back();  // the last event is worth more than the one before it
    if (event != nullptr && (!full || last)) {
      items_.push_back({std::move(event), std::exchange(missed_, 0)});
    }
  }
  absl::MutexLock lock(&notify_mutex_);
  if (notify_) notify_();
}

std::shared_ptr<Subscription> EventHub::Subscribe(int64_t study_id) {
  auto subscription = std::make_shared<Subscription>();
  absl::MutexLock lock(&mutex_);
  Readers& readers = readers_[study_id];
  std::erase_if(readers, [](const auto& reader) { return reader.expired(); });
  readers.push_back(subscription);
  return subscription;
}

std::vector<std::shared_ptr<Subscription>> EventHub::ReadersOf(int64_t study_id) {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Subscription>> alive;
  auto found = readers_.find(study_id);
  if (found == readers_.end()) return alive;
  for (const auto& reader : found->second) {
    if (auto subscription = reader.lock()) alive.push_back(std::move(subscription));
  }
  return alive;
}

void EventHub::Publish(int64_t study_id, StudyEvent event) {
  auto shared = std::make_shared<const StudyEvent>(std::move(event));
  for (const auto& reader : ReadersOf(study_id)) reader->Push(shared, false);
}

void EventHub::End(const StudyRecord& study) {
  auto shared = std::make_shared<const StudyEvent>(study);
  for (const auto& reader : ReadersOf(study.id)) reader->Push(shared, true);
  absl::MutexLock lock(&mutex_);
  readers_.erase(study.id);
}

void EventHub::EndAll() {
  std::map<int64_t, Readers> readers;
  {
    absl::MutexLock lock(&mutex_);
    readers.swap(readers_);
  }
  for (const auto& [study_id, list] : readers) {
    for (const auto& reader : list) {
      if (auto subscription = reader.lock()) subscription->Push(nullptr, true);
    }
  }
}

}  // namespace hbmtune::daemon

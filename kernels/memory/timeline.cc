#include "kernels/memory/timeline.h"

#include <algorithm>
#include <utility>

namespace hbmtune::memory {

double Timeline::Now() const {
  return clock_seconds_ ? clock_seconds_() : static_cast<double>(changes_.size());
}

void Timeline::OnEvent(const AllocatorEvent& event) {
  int64_t delta = 0;
  switch (event.action) {
    case Action::kAlloc:
      delta = event.block_bytes;
      break;
    case Action::kFreeRequested:
      delta = -event.block_bytes;
      break;
    case Action::kFreeCompleted:
    case Action::kOom:
      return;
    default:
      break;  // segments change what is reserved
  }
  changes_.push_back({Now(), delta, event.reserved_bytes, event.category});
}

void Timeline::Mark(std::string label) { phases_.push_back({std::move(label), Now()}); }

std::vector<Timeline::Sample> Timeline::Samples(size_t most) const {
  std::vector<Sample> samples;
  // Each bucket keeps the sample with the highest allocated and the one with the highest reserved.
  size_t buckets = std::max<size_t>(1, most / 2);
  size_t width = most >= changes_.size() ? 1 : (changes_.size() + buckets - 1) / buckets;
  std::pair<size_t, Sample> allocated, reserved;  // with the number of the change
  Sample now;
  for (size_t i = 0; i < changes_.size(); ++i) {
    const Change& change = changes_[i];
    now.seconds = change.seconds;
    now.allocated_bytes += change.allocated_delta;
    now.reserved_bytes = change.reserved_bytes;
    now.by_category[static_cast<size_t>(change.category)] += change.allocated_delta;
    bool first = i % width == 0;
    if (first || now.allocated_bytes > allocated.second.allocated_bytes) allocated = {i, now};
    if (first || now.reserved_bytes > reserved.second.reserved_bytes) reserved = {i, now};
    if ((i + 1) % width != 0 && i + 1 != changes_.size()) continue;
    if (reserved.first < allocated.first) samples.push_back(reserved.second);
    samples.push_back(allocated.second);
    if (reserved.first > allocated.first) samples.push_back(reserved.second);
  }
  return samples;
}

void Timeline::Clear() {
  changes_.clear();
  phases_.clear();
}

}  // namespace hbmtune::memory

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/observer.h"

namespace hbmtune::memory {

// Memory over time: add it to an allocator as an observer (none, no cost). It keeps 32 bytes for
// each change of allocated or reserved memory; a step of 16,800 events takes half a MiB.
class Timeline final : public AllocatorObserver {
 public:
  // `clock_seconds` stamps the samples; without one they are at 0, 1, 2, …
  explicit Timeline(std::function<double()> clock_seconds = nullptr)
      : clock_seconds_(std::move(clock_seconds)) {}

  void OnEvent(const AllocatorEvent& event) override;
  // Names what follows ("forward", "backward", …).
  void Mark(std::string label);

  struct Sample {
    double seconds = 0;
    int64_t allocated_bytes = 0;
    int64_t reserved_bytes = 0;
    ByCategory by_category{};  // sums to allocated_bytes
  };
  struct Phase {
    std::string label;
    double seconds;  // where it begins
  };

  // The curve, one sample after each change, thinned to at most `most` in such a way that the
  // highest allocated and reserved bytes stay. What was live before the first event counts as 0.
  std::vector<Sample> Samples(size_t most = SIZE_MAX) const;
  const std::vector<Phase>& phases() const { return phases_; }
  void Clear();

 private:
  struct Change {
    double seconds;
    int64_t allocated_delta;
    int64_t reserved_bytes;
    Category category;
  };
  double Now() const;

  std::function<double()> clock_seconds_;
  std::vector<Change> changes_;
  std::vector<Phase> phases_;
};

}  // namespace hbmtune::memory

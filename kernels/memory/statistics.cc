#include "kernels/memory/statistics.h"

#include <string_view>

namespace hbmtune::memory {
namespace {

template <class Self, class F>
void ForEachPoolStat(Self& self, F&& f) {
  f("allocation", self.allocation);
  f("segment", self.segment);
  f("active", self.active);
  f("inactive_split", self.inactive_split);
  f("allocated_bytes", self.allocated_bytes);
  f("reserved_bytes", self.reserved_bytes);
  f("active_bytes", self.active_bytes);
  f("inactive_split_bytes", self.inactive_split_bytes);
  f("requested_bytes", self.requested_bytes);
}

template <class Self, class F>
void ForEachStat(Self& self, F&& f) {
  ForEachPoolStat(self, [&](std::string_view name, auto& stat) {
    f(std::string(name) + ".all", stat.all);
    f(std::string(name) + ".small_pool", stat.small_pool);
    f(std::string(name) + ".large_pool", stat.large_pool);
  });
  f(std::string("oversize_allocations"), self.oversize_allocations);
  f(std::string("oversize_segments"), self.oversize_segments);
}

template <class Self, class F>
void ForEachCount(Self& self, F&& f) {
  f("num_alloc_retries", self.num_alloc_retries);
  f("num_ooms", self.num_ooms);
  f("num_sync_all_streams", self.num_sync_all_streams);
  f("num_device_alloc", self.num_device_alloc);
  f("num_device_free", self.num_device_free);
  f("num_oom_rejections", self.num_oom_rejections);
}

}  // namespace

void AllocatorStatistics::ResetPeak() {
  ForEachStat(*this, [](const std::string&, Stat& stat) { stat.peak = stat.current; });
}

void AllocatorStatistics::ResetAccumulated() {
  ForEachStat(*this, [](const std::string&, Stat& stat) { stat.allocated = stat.freed = 0; });
  ForEachCount(*this, [](std::string_view, int64_t& count) { count = 0; });
}

std::vector<std::pair<std::string, int64_t>> AllocatorStatistics::Flatten() const {
  std::vector<std::pair<std::string, int64_t>> result;
  ForEachStat(*this, [&](const std::string& name, const Stat& stat) {
    result.emplace_back(name + ".current", stat.current);
    result.emplace_back(name + ".peak", stat.peak);
    result.emplace_back(name + ".allocated", stat.allocated);
    result.emplace_back(name + ".freed", stat.freed);
  });
  ForEachCount(*this, [&](std::string_view name, int64_t count) {
    result.emplace_back(name, count);
  });
  result.emplace_back("max_split_size", max_split_size);
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace hbmtune::memory

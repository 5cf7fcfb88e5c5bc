#include "kernels/device/calibrate/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace hbmtune::device {

double MedianSeconds(const std::function<void()>& run, double seconds,
                     const std::function<void()>& before) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  run();
  constexpr size_t kFewest = 3, kMost = 1000;
  std::vector<double> times;
  const auto start = Clock::now();
  while (times.size() < kFewest || (since(start) < seconds && times.size() < kMost)) {
    if (before) before();
    const auto begin = Clock::now();
    run();
    times.push_back(since(begin));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

}  // namespace hbmtune::device

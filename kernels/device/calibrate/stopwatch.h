#pragma once

#include <functional>

namespace hbmtune::device {

// Median time of `run`: after one call that is not timed, at least three, and on until
// `seconds` are spent. `before`, if any, is run before each and is not timed.
double MedianSeconds(const std::function<void()>& run, double seconds = 0.03,
                     const std::function<void()>& before = {});

}  // namespace hbmtune::device

#pragma once

#include <functional>

namespace hbmtune::device {

// Median time of `run`: after one call that is not timed, at least three, and on until
// `seconds` are spent.
double MedianSeconds(const std::function<void()>& run, double seconds = 0.03);

}  // namespace hbmtune::device

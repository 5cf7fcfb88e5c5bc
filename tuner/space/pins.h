#pragma once

#include <absl/status/status.h>

#include <string>
#include <string_view>
#include <vector>

#include "tuner/space/space.h"

namespace hbmtune::tuner {

// Narrows or adds axes as the pins say, those of the micro-batch and of accumulation aside.
absl::Status ApplyPins(const Workload& workload, const Pins& pins, std::vector<Axis>& axes);

// The whole numbers that a pin allows: the values of a list, or those of `searched` in a range,
// or without any in it the range's ends. `searched` itself if there is no such pin.
absl::StatusOr<std::vector<int64_t>> PinnedNumbers(const Pins& pins, const std::string& path,
                                                   const std::vector<int64_t>& searched);

// Sets the axis's field, or for "precision" the dtype fields that the name or object means.
void SetAxis(const std::string& path, const Json& value, Framework framework,
             TrainConfig& config);

}  // namespace hbmtune::tuner

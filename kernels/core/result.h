#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/category.h"
#include "kernels/core/visit.h"

namespace hbmtune {

// Weakest to strongest (DESIGN section 1). A weaker one is never shown as a stronger.
enum class Evidence : uint8_t { kPredicted, kTransferred, kReplayed, kMeasured };
template <>
struct EnumNames<Evidence> {
  static constexpr std::array<std::string_view, 4> kNames = {"PREDICTED", "TRANSFERRED",
                                                             "REPLAYED", "MEASURED"};
};

// How a probe ended.
enum class Outcome : uint8_t {
  kOk,
  kOutOfMemory,
  kNotFinite,
  kTimeout,
  kCrashed,
  kDeviceLost,
  kCancelled,
  kInvalid,
};
template <>
struct EnumNames<Outcome> {
  static constexpr std::array<std::string_view, 8> kNames = {
      "OK",      "OUT_OF_MEMORY", "NOT_FINITE", "TIMEOUT",
      "CRASHED", "DEVICE_LOST",   "CANCELLED",  "INVALID"};
};

struct CategoryBytes {
  Category category = Category::kWeights;
  int64_t bytes = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"category", "whom the memory belongs to"}, self.category);
    v(Field{"bytes", "bytes at the peak"}, self.bytes);
  }
};

// Relative bounds of the peak: the truth is expected in [1 + low, 1 + high] × the figure.
struct Interval {
  double low_ratio = 0;
  double high_ratio = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"low_ratio", "lower bound of the peak relative to the figure, minus one"},
      self.low_ratio);
    v(Field{"high_ratio", "upper bound of the peak relative to the figure, minus one"},
      self.high_ratio);
  }
};

// The modelled device's answer for one train config.
struct Estimate {
  bool fits = false;
  int64_t capacity_bytes = 0;
  int64_t ceiling_bytes = 0;
  int64_t peak_allocated_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t peak_used_bytes = 0;
  std::string peak_phase;
  std::vector<CategoryBytes> breakdown;
  int64_t host_bytes = 0;
  int64_t save_peak_bytes = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  Evidence evidence = Evidence::kPredicted;
  Interval interval;
  std::string limited_by;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"fits", "the peak is under the ceiling"}, self.fits);
    v(Field{"capacity_bytes", "memory of the device"}, self.capacity_bytes);
    v(Field{"ceiling_bytes", "memory that may be used"}, self.ceiling_bytes);
    v(Field{"peak_allocated_bytes", "most bytes in live tensors"}, self.peak_allocated_bytes);
    v(Field{"peak_reserved_bytes", "most bytes held by the allocator"}, self.peak_reserved_bytes);
    v(Field{"peak_used_bytes", "most bytes taken according to the driver"}, self.peak_used_bytes);
    v(Field{"peak_phase", "where in the step the peak falls"}, self.peak_phase);
    v(Field{"breakdown", "owners of the memory at the allocated peak"}, self.breakdown);
    v(Field{"host_bytes", "host memory that the config needs"}, self.host_bytes);
    v(Field{"save_peak_bytes",
            "most bytes in live tensors while weights are gathered to be saved; 0 if none are"},
      self.save_peak_bytes);
    v(Field{"step_seconds", "time of one optimizer step"}, self.step_seconds);
    v(Field{"tokens_per_second", "tokens trained a second, over all ranks"},
      self.tokens_per_second);
    v(Field{"evidence", "what the figures rest on"}, self.evidence);
    v(Field{"interval", "bounds of the peak"}, self.interval);
    v(Field{"limited_by", "what keeps the config from being faster or larger"}, self.limited_by);
  }
};

// What one probe returned. Shortage fields are 0 unless it ran out of memory.
struct Measurement {
  Outcome outcome = Outcome::kOk;
  std::string message;
  int64_t steps = 0;
  double step_seconds = 0;
  double step_seconds_stderr = 0;
  double tokens_per_second = 0;
  int64_t capacity_bytes = 0;
  int64_t peak_allocated_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t peak_used_bytes = 0;
  std::string peak_phase;
  std::vector<CategoryBytes> breakdown;
  int64_t host_bytes = 0;
  double first_loss = 0;
  double last_loss = 0;
  int64_t overflow_steps = 0;
  int64_t requested_bytes = 0;
  int64_t free_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t allocated_bytes = 0;
  std::string phase;
  std::string op;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"outcome", "how the probe ended"}, self.outcome);
    v(Field{"message", "what happened and where, in a sentence"}, self.message);
    v(Field{"steps", "optimizer steps that were timed"}, self.steps);
    v(Field{"step_seconds", "median time of one optimizer step"}, self.step_seconds);
    v(Field{"step_seconds_stderr", "standard error of the step time"}, self.step_seconds_stderr);
    v(Field{"tokens_per_second", "tokens trained a second, over all ranks"},
      self.tokens_per_second);
    v(Field{"capacity_bytes", "memory of the device or budget"}, self.capacity_bytes);
    v(Field{"peak_allocated_bytes", "most bytes in live tensors"}, self.peak_allocated_bytes);
    v(Field{"peak_reserved_bytes", "most bytes held by the allocator"}, self.peak_reserved_bytes);
    v(Field{"peak_used_bytes", "most bytes taken according to the driver"}, self.peak_used_bytes);
    v(Field{"peak_phase", "where in the step the peak fell"}, self.peak_phase);
    v(Field{"breakdown", "owners of the memory at the allocated peak"}, self.breakdown);
    v(Field{"host_bytes", "host memory that the probe used"}, self.host_bytes);
    v(Field{"first_loss", "loss of the first step"}, self.first_loss);
    v(Field{"last_loss", "loss of the last step"}, self.last_loss);
    v(Field{"overflow_steps", "steps skipped because a gradient overflowed"},
      self.overflow_steps);
    v(Field{"requested_bytes", "out of memory: what was asked for"}, self.requested_bytes);
    v(Field{"free_bytes", "out of memory: what was free"}, self.free_bytes);
    v(Field{"reserved_bytes", "out of memory: what the allocator held"}, self.reserved_bytes);
    v(Field{"allocated_bytes", "out of memory: what live tensors held"}, self.allocated_bytes);
    v(Field{"phase", "out of memory: phase of the step"}, self.phase);
    v(Field{"op", "out of memory: operation that asked"}, self.op);
  }
};

}  // namespace hbmtune

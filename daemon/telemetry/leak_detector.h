#pragma once

#include <cstdint>
#include <deque>
#include <optional>

// Finds a floor that rises step after step, the "memory climbs like stairs" of practitioners.
namespace hbmtune {

// A rising floor: found at a step, over a window of steps.
struct Leak {
  int64_t step = 0;
  double bytes_per_step = 0;
  int64_t growth_bytes = 0;  // of the floor, from the window's first quarter to its last
  int64_t window_steps = 0;
};

// Feed it the bytes in live tensors right after each optimizer step. The last kWindowSteps are cut
// in four quarters by step number, and of each the 20 % and the 80 % quantile is taken. It is a
// leak when both rise from every quarter to the next by more than the noise and more than 0.5 %,
// and the last rise is at least half of the first. So
//   - a saw-tooth with a period under the window falls back in some quarter: the low quantile of
//     the one that it falls in, or the high quantile of the next,
//   - a warm-up slows down (for an exponential of 100 steps the last rise is 0.37 of the first),
//   - a cache that grows once rises in one quarter, or in two where the rise straddles a cut,
//   - a staircase with a stair in every quarter is found.
// The noise is the median absolute first difference: it sees neither a slope nor rare stairs.
class LeakDetector {
 public:
  static constexpr int64_t kWindowSteps = 180;

  // Returns a finding when there is one and none was given in the last kWindowSteps.
  // Steps that do not advance are ignored; a step number that falls back starts anew.
  std::optional<Leak> Add(int64_t step, int64_t allocated_bytes);

 private:
  struct Point {
    int64_t step;
    double bytes;
  };

  struct Quarter {
    double low = 0;
    double high = 0;
  };

  std::optional<Leak> Examine() const;
  std::optional<Quarter> QuarterOf(int64_t from_step, int64_t to_step) const;
  double Noise() const;

  std::deque<Point> points_;
  std::optional<int64_t> last_alarm_step_;
};

}  // namespace hbmtune

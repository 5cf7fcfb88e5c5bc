#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/category.h"
#include "kernels/core/visit.h"

namespace hbmtune {

// Memory at one moment of the step.
struct TimelinePoint {
  double seconds = 0;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  std::vector<int64_t> category_bytes;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"seconds", "since the step began"}, self.seconds);
    v(Field{"allocated_bytes", "bytes in live tensors"}, self.allocated_bytes);
    v(Field{"reserved_bytes", "bytes held by the allocator"}, self.reserved_bytes);
    v(Field{"category_bytes", "the same bytes by owner, in the order of `categories`"},
      self.category_bytes);
  }
};

struct TimelinePhase {
  std::string name;
  double begin_seconds = 0;
  double end_seconds = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"name", "phase of the step"}, self.name);
    v(Field{"begin_seconds", "where it begins"}, self.begin_seconds);
    v(Field{"end_seconds", "where it ends"}, self.end_seconds);
  }
};

// Memory over one optimizer step in the steady state. Of many micro-steps two are drawn, which
// show all that memory does.
struct StepTimeline {
  double step_seconds = 0;
  int64_t drawn_micro_steps = 0;
  int64_t outside_bytes = 0;
  int64_t first_step_peak_bytes = 0;
  std::vector<Category> categories;
  std::vector<TimelinePhase> phases;
  std::vector<TimelinePoint> points;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"step_seconds", "length of what is drawn"}, self.step_seconds);
    v(Field{"drawn_micro_steps", "micro-batches that are drawn: two stand for any number"},
      self.drawn_micro_steps);
    v(Field{"outside_bytes", "taken beside the allocator, all the time"}, self.outside_bytes);
    v(Field{"first_step_peak_bytes", "most allocated in any step, the first one included"},
      self.first_step_peak_bytes);
    v(Field{"categories", "owners, those that hold nothing left out"}, self.categories);
    v(Field{"phases", "phases of the step"}, self.phases);
    v(Field{"points", "the curve; each holds until the next"}, self.points);
  }
};

}  // namespace hbmtune

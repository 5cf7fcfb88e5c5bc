#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/output_json.h"
#include "kernels/core/category.h"

// Memory over the step, as `estimate --timeline` writes it.
namespace hbmtune::client {

struct TimelinePointOutput {
  double seconds = 0;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  std::vector<int64_t> category_bytes;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"seconds", "since the step began"}, self.seconds);
    v(Field{"allocated_bytes", "bytes in live tensors"}, self.allocated_bytes);
    v(Field{"reserved_bytes", "bytes held by the allocator"}, self.reserved_bytes);
    v(Field{"category_bytes", "the allocated bytes by owner, in the order of categories"},
      self.category_bytes);
  }
};

struct TimelinePhaseOutput {
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

struct StepTimelineOutput {
  double step_seconds = 0;
  int64_t drawn_micro_steps = 0;
  int64_t outside_bytes = 0;
  int64_t first_step_peak_bytes = 0;
  std::vector<Category> categories;
  std::vector<TimelinePhaseOutput> phases;
  std::vector<TimelinePointOutput> points;

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

// The file of `--timeline out.json`: what estimate prints, and the series.
struct TimelineOutput {
  EstimateOutput estimate;
  StepTimelineOutput timeline;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    EstimateOutput::Visit(self.estimate, v);
    v(Field{"timeline", "memory over one step in the steady state"}, self.timeline);
  }
};

}  // namespace hbmtune::client

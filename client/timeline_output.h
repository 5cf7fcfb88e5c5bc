#pragma once

#include "client/output_json.h"
#include "kernels/core/step_timeline.h"

// Memory over the step, as `estimate --timeline` writes it.
namespace hbmtune::client {

// The file of `--timeline out.json`: what estimate prints, and the series.
struct TimelineOutput {
  EstimateOutput estimate;
  StepTimeline timeline;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    EstimateOutput::Visit(self.estimate, v);
    v(Field{"timeline", "memory over one step in the steady state"}, self.timeline);
  }
};

}  // namespace hbmtune::client

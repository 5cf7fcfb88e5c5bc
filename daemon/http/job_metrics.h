#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

#include "daemon/monitor/job_monitors.h"

namespace hbmtune::daemon {

// What jobs report of their memory, by device: a job's id stands on hbmtune_job_info alone, to be
// joined on `device`, so that no other series ends with a job. Where jobs share a device, the bytes
// of their allocators are summed, of ratios stands the highest, of other figures the least.
class JobMetrics final : public prometheus::Collectable {
 public:
  explicit JobMetrics(const JobMonitors& monitors) : monitors_(monitors) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const JobMonitors& monitors_;
};

}  // namespace hbmtune::daemon

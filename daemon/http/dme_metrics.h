#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <vector>

#include "daemon/telemetry/sampler.h"

namespace hbmtune::daemon {

// The GPUs' figures once more under the names and units of AMD's device-metrics-exporter
// (`amd_gpu_used_vram` in MiB, activity in percent), for boards and rules that were written for it.
// Off unless asked for: two exporters on a node double every sum.
class DmeMetrics final : public prometheus::Collectable {
 public:
  using Source = std::function<std::vector<DeviceState>()>;
  explicit DmeMetrics(Source source) : source_(std::move(source)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  Source source_;
};

}  // namespace hbmtune::daemon

#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <vector>

#include "daemon/telemetry/sampler.h"

namespace hbmtune::daemon {

// Spelt as AMD's device-metrics-exporter does, so that the two can be joined.
std::vector<prometheus::ClientMetric::Label> GpuLabels(const DeviceState& device);

// The GPUs' figures from their last samples: a scrape reads no file. What could not be read has no
// series; a GPU that has vanished has none at all.
class GpuMetrics final : public prometheus::Collectable {
 public:
  using Source = std::function<std::vector<DeviceState>()>;
  explicit GpuMetrics(Source source) : source_(std::move(source)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  Source source_;
};

}  // namespace hbmtune::daemon

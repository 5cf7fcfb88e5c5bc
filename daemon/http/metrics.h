#pragma once

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/devices/catalogue.h"
#include "daemon/studies/study.h"

namespace hbmtune::daemon {

// The daemon's own metrics: prefix hbmtune_, base units, no label that grows with use (no study, no
// user, no config). Any thread.
class Metrics {
 public:
  Metrics();

  void CountTrial(const TrialRecord& trial, DeviceKind kind);
  // A gauge whose value is asked for at each scrape; `read` must be quick.
  void AddGauge(const std::string& name, const std::string& help, std::function<double()> read);

  // More families, collected at each scrape.
  void AddSource(std::shared_ptr<prometheus::Collectable> source);

  // Prometheus' text format.
  std::string Text();

 private:
  struct Asked {
    prometheus::Gauge& gauge;
    std::function<double()> read;
  };

  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& trials_;
  prometheus::Histogram& probe_seconds_;
  // Constant once the daemon serves.
  std::vector<Asked> asked_;
  std::vector<std::shared_ptr<prometheus::Collectable>> sources_;
};

}  // namespace hbmtune::daemon

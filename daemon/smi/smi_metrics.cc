#include "daemon/smi/smi_metrics.h"

#include <prometheus/metric_family.h>

#include <functional>
#include <optional>

namespace hbmtune::daemon {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

struct Figure {
  const char* name;
  const char* help;
  MetricType type;
  std::function<std::optional<double>(const SmiSample&)> read;
};

const std::vector<Figure>& Figures() {
  using S = const SmiSample&;
  static const std::vector<Figure> kFigures = {
      {"hbmtune_gpu_energy_joules_total", "Energy taken since the driver was loaded",
       MetricType::Counter, [](S s) { return s.energy_joules; }},
      {"hbmtune_gpu_pcie_sent_bytes_per_second", "Sent over PCIe in the last second",
       MetricType::Gauge, [](S s) { return s.pcie_sent_bytes_per_second; }},
      {"hbmtune_gpu_pcie_received_bytes_per_second", "Received over PCIe in the last second",
       MetricType::Gauge, [](S s) { return s.pcie_received_bytes_per_second; }},
      {"hbmtune_gpu_retired_pages", "Pages of memory set aside after errors", MetricType::Gauge,
       [](S s) {
         return s.retired_pages ? std::optional(static_cast<double>(*s.retired_pages))
                                : std::nullopt;
       }},
  };
  return kFigures;
}

}  // namespace

std::vector<MetricFamily> SmiMetrics::Collect() const {
  std::vector<MetricFamily> families;
  MetricFamily& up = families.emplace_back(
      MetricFamily{"hbmtune_rocm_smi_up", "1 while the ROCm SMI library gives figures",
                   MetricType::Gauge, {}});
  up.metric.emplace_back().gauge.value = feed_.up() ? 1 : 0;
  const std::vector<SmiSample> samples = feed_.Samples();
  for (const Figure& figure : Figures()) {
    MetricFamily family{figure.name, figure.help, figure.type, {}};
    for (const SmiSample& sample : samples) {
      auto value = figure.read(sample);
      if (!value) continue;
      prometheus::ClientMetric& metric = family.metric.emplace_back();
      metric.label = {{"pci_bus_id", sample.pci_address}};
      (figure.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = *value;
    }
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  return families;
}

}  // namespace hbmtune::daemon

#include "daemon/http/gpu_metrics.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include <optional>
#include <string>

namespace hbmtune::daemon {
namespace {

struct Figure {
  const char* name;
  const char* help;
  std::function<std::optional<double>(const GpuSample&)> read;
};

template <class T>
std::optional<double> Number(const std::optional<T>& value) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value);
}

const std::vector<Figure>& Figures() {
  using S = const GpuSample&;
  static const std::vector<Figure> kFigures = {
      {"hbmtune_gpu_memory_total_bytes", "Memory of the GPU",
       [](S s) { return Number(s.vram_total_bytes); }},
      {"hbmtune_gpu_memory_used_bytes", "Memory taken, according to the driver",
       [](S s) { return Number(s.vram_used_bytes); }},
      {"hbmtune_gpu_gtt_used_bytes", "Host memory that the GPU has mapped",
       [](S s) { return Number(s.gtt_used_bytes); }},
      {"hbmtune_gpu_busy_ratio", "Share of the last moment in which the GPU worked",
       [](S s) { return s.busy_ratio; }},
      {"hbmtune_gpu_memory_busy_ratio", "Share of the last moment in which its memory worked",
       [](S s) { return s.memory_busy_ratio; }},
      {"hbmtune_gpu_power_watts", "Power of the package", [](S s) { return s.power_watts; }},
      {"hbmtune_gpu_power_cap_watts", "Limit of the package's power",
       [](S s) { return s.power_cap_watts; }},
      {"hbmtune_gpu_junction_celsius", "Temperature of the hottest place",
       [](S s) { return s.junction_celsius; }},
      {"hbmtune_gpu_memory_celsius", "Temperature of the memory",
       [](S s) { return s.memory_celsius; }},
  };
  return kFigures;
}

}  // namespace

std::vector<prometheus::ClientMetric::Label> GpuLabels(const DeviceState& device) {
  std::vector<prometheus::ClientMetric::Label> labels = {
      {"pci_bus_id", device.identity.pci_address},
      {"gpu_partition_id", absl::StrCat(device.identity.partition)},
      {"card_model", device.identity.product}};
  if (!device.identity.uuid.empty()) labels.push_back({"gpu_uuid", device.identity.uuid});
  const auto& sample = device.sample;
  if (sample.compute_partition) {
    labels.push_back({"gpu_compute_partition_type",
                      absl::AsciiStrToLower(*sample.compute_partition)});
  }
  if (sample.memory_partition) {
    labels.push_back({"gpu_memory_partition_type",
                      absl::AsciiStrToLower(*sample.memory_partition)});
  }
  return labels;
}

std::vector<prometheus::MetricFamily> GpuMetrics::Collect() const {
  const std::vector<DeviceState> devices = source_();
  std::vector<prometheus::MetricFamily> families;
  for (const Figure& figure : Figures()) {
    prometheus::MetricFamily family;
    family.name = figure.name;
    family.help = figure.help;
    family.type = prometheus::MetricType::Gauge;
    for (const DeviceState& device : devices) {
      if (!device.present) continue;
      auto value = figure.read(device.sample);
      if (!value) continue;
      prometheus::ClientMetric metric;
      metric.label = GpuLabels(device);
      metric.gauge.value = *value;
      family.metric.push_back(std::move(metric));
    }
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  return families;
}

}  // namespace hbmtune::daemon

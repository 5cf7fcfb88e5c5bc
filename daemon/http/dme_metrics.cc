#include "daemon/http/dme_metrics.h"

#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "daemon/http/gpu_metrics.h"

namespace hbmtune::daemon {
namespace {

struct Figure {
  const char* name;
  const char* help;
  std::function<std::optional<double>(const GpuSample&)> read;
};

std::optional<double> Mebibytes(const std::optional<int64_t>& bytes) {
  if (!bytes) return std::nullopt;
  return static_cast<double>(*bytes >> 20);
}

std::optional<double> Percent(const std::optional<double>& ratio) {
  if (!ratio) return std::nullopt;
  return *ratio * 100;
}

std::optional<int64_t> Free(const GpuSample& s) {
  if (!s.vram_total_bytes || !s.vram_used_bytes) return std::nullopt;
  return *s.vram_total_bytes - *s.vram_used_bytes;
}

// Which of the three names of power a card has: package_power on MI300, average_package_power on
// MI200. Cards with partition files are the former.
bool IsMi300(const GpuSample& s) { return s.compute_partition.has_value(); }

const std::vector<Figure>& Figures() {
  using S = const GpuSample&;
  static const std::vector<Figure> kFigures = {
      {"amd_gpu_total_vram", "Memory of the GPU in MB",
       [](S s) { return Mebibytes(s.vram_total_bytes); }},
      {"amd_gpu_used_vram", "Memory taken in MB", [](S s) { return Mebibytes(s.vram_used_bytes); }},
      {"amd_gpu_free_vram", "Memory not taken in MB", [](S s) { return Mebibytes(Free(s)); }},
      {"amd_gpu_total_gtt", "Host memory that can be mapped in MB",
       [](S s) { return Mebibytes(s.gtt_total_bytes); }},
      {"amd_gpu_used_gtt", "Host memory that is mapped in MB",
       [](S s) { return Mebibytes(s.gtt_used_bytes); }},
      {"amd_gpu_gfx_activity", "Busy share in percent", [](S s) { return Percent(s.busy_ratio); }},
      {"amd_gpu_umc_activity", "Busy share of the memory in percent",
       [](S s) { return Percent(s.memory_busy_ratio); }},
      {"amd_gpu_package_power", "Power in watts",
       [](S s) { return IsMi300(s) ? s.power_watts : std::nullopt; }},
      {"amd_gpu_average_package_power", "Power in watts",
       [](S s) { return IsMi300(s) ? std::nullopt : s.power_watts; }},
      {"amd_gpu_junction_temperature", "Temperature of the hottest place in degrees Celsius",
       [](S s) { return s.junction_celsius; }},
      {"amd_gpu_memory_temperature", "Temperature of the memory in degrees Celsius",
       [](S s) { return s.memory_celsius; }},
  };
  return kFigures;
}

std::string Hostname() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

std::vector<prometheus::MetricFamily> DmeMetrics::Collect() const {
  const std::vector<DeviceState> devices = source_();
  const std::string hostname = Hostname();
  std::vector<prometheus::MetricFamily> families;
  for (const Figure& figure : Figures()) {
    prometheus::MetricFamily family{figure.name, figure.help, prometheus::MetricType::Gauge, {}};
    for (size_t i = 0; i < devices.size(); ++i) {
      auto value = devices[i].present ? figure.read(devices[i].sample) : std::nullopt;
      if (!value) continue;
      prometheus::ClientMetric& metric = family.metric.emplace_back();
      metric.label = GpuLabels(devices[i]);
      metric.label.push_back({"gpu_id", absl::StrCat(i)});
      metric.label.push_back({"hostname", hostname});
      metric.gauge.value = *value;
    }
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  return families;
}

}  // namespace hbmtune::daemon

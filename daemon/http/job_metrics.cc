#include "daemon/http/job_metrics.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace hbmtune::daemon {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

double Sum(double a, double b) { return a + b; }
double Most(double a, double b) { return std::max(a, b); }
double Least(double a, double b) { return std::min(a, b); }

struct Figure {
  const char* name;
  const char* help;
  std::optional<double> (*read)(const JobMemory& job);
  double (*join)(double, double);  // of jobs on one device
};

template <class T>
std::optional<double> Number(const std::optional<T>& value) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value);
}
std::optional<double> Number(int64_t value) { return static_cast<double>(value); }

using J = const JobMemory&;
constexpr Figure kFigures[] = {
    {"hbmtune_job_allocated_bytes", "Bytes in live tensors of jobs",
     [](J job) { return Number(job.report.allocated_bytes); }, Sum},
    {"hbmtune_job_reserved_bytes", "Bytes that jobs' caching allocators hold",
     [](J job) { return Number(job.report.reserved_bytes); }, Sum},
    {"hbmtune_job_cache_resident_bytes", "Reserved bytes in no live block",
     [](J job) { return Number(job.state.cache_resident_bytes); }, Sum},
    {"hbmtune_job_fragmentation_ratio", "Share of reserved memory that no block used at the peak",
     [](J job) { return std::optional(job.state.fragmentation_ratio); }, Most},
    {"hbmtune_job_outside_allocator_bytes", "Used memory that a job's allocator does not hold",
     [](J job) { return Number(job.state.outside_allocator_bytes); }, Least},
    {"hbmtune_job_safe_allocation_bytes", "Largest new segment that the driver can give",
     [](J job) { return Number(job.state.safe_allocation_bytes); }, Least},
};

MetricFamily FamilyOf(const Figure& figure, const std::vector<JobMemory>& jobs) {
  std::map<std::string, double> by_device;
  for (const JobMemory& job : jobs) {
    const auto value = figure.read(job);
    if (!value) continue;
    auto [entry, is_first] = by_device.try_emplace(job.device, *value);
    if (!is_first) entry->second = figure.join(entry->second, *value);
  }
  MetricFamily family{figure.name, figure.help, MetricType::Gauge, {}};
  for (const auto& [device, value] : by_device) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"device", device}};
    metric.gauge.value = value;
  }
  return family;
}

MetricFamily InfoOf(const std::vector<JobMemory>& jobs) {
  MetricFamily family{"hbmtune_job_info", "1 for each job that reports", MetricType::Gauge, {}};
  for (const JobMemory& job : jobs) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"device", job.device}, {"job_id", job.job_id}};
    metric.gauge.value = 1;
  }
  return family;
}

}  // namespace

std::vector<MetricFamily> JobMetrics::Collect() const {
  MetricFamily findings{
      "hbmtune_findings_total", "What the memory monitor found", MetricType::Counter, {}};
  const JobMonitors::Counts counts = monitors_.counts();
  for (size_t kind = 0; kind < counts.size(); ++kind) {
    prometheus::ClientMetric& metric = findings.metric.emplace_back();
    metric.label = {{"kind", std::string(Name(static_cast<FindingKind>(kind)))}};
    metric.counter.value = static_cast<double>(counts[kind]);
  }
  std::vector<MetricFamily> families = {std::move(findings)};
  const std::vector<JobMemory> jobs = monitors_.Jobs();
  if (jobs.empty()) return families;
  families.push_back(InfoOf(jobs));
  for (const Figure& figure : kFigures) {
    MetricFamily family = FamilyOf(figure, jobs);
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  return families;
}

}  // namespace hbmtune::daemon

#include "daemon/telemetry/monitor.h"

#include <algorithm>
#include <cstdio>

#include "kernels/core/units.h"

namespace hbmtune {
namespace {

// Practitioners on MI210 saw 15 to 25 % of memory lost to fragmentation and 7 to 12 % of it sitting
// in the cache; STAlloc calls a utilisation under 90 % severe.
constexpr double kFragmentationRatio = 0.15;
constexpr double kIdleCacheRatio = 0.10;
constexpr int64_t kIdleCacheSteps = 50;
constexpr int64_t kSettledSteps = 3;  // the optimizer's state appears in the first step
constexpr int64_t kPageBytes = 2 * kMiB;

std::string Percent(double ratio) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", ratio * 100);
  return text;
}

Finding LeakFinding(const Leak& leak) {
  return {FindingKind::kLeak, leak.step,
          "live memory after the optimizer step rises by " +
              FormatBytes(static_cast<int64_t>(leak.bytes_per_step)) + " a step: " +
              FormatBytes(leak.growth_bytes) + " over the last " +
              std::to_string(leak.window_steps) + " steps",
          "look for tensors that outlive a step with their graph: losses summed without .item(), "
          "batches kept by the data loader with requires_grad, metrics lists, hooks"};
}

}  // namespace

std::vector<Finding> MemoryMonitor::Add(const AllocatorReport& report,
                                        std::optional<int64_t> used_bytes,
                                        std::optional<int64_t> total_bytes) {
  std::vector<Finding> findings;
  if (last_ && report.step < last_->step) *this = MemoryMonitor();
  peak_active_bytes_ = std::max(peak_active_bytes_, report.active_bytes);
  peak_reserved_bytes_ = std::max(peak_reserved_bytes_, report.reserved_bytes);
  state_ = {};
  if (peak_reserved_bytes_ > 0) {
    state_.fragmentation_ratio = 1.0 - static_cast<double>(peak_active_bytes_) /
                                           static_cast<double>(peak_reserved_bytes_);
  }
  state_.cache_resident_bytes = report.reserved_bytes - report.active_bytes;
  if (used_bytes) {
    state_.outside_allocator_bytes = std::max<int64_t>(0, *used_bytes - report.reserved_bytes);
  }
  if (used_bytes && total_bytes) {
    int64_t free = std::max<int64_t>(0, *total_bytes - *used_bytes);
    state_.safe_allocation_bytes = free / kPageBytes * kPageBytes;
  }
  if (auto leak = leak_.Add(report.step, report.allocated_bytes)) {
    findings.push_back(LeakFinding(*leak));
  }
  CheckFragmentation(report, findings);
  CheckCounters(report, findings);
  last_ = report;
  return findings;
}

void MemoryMonitor::CheckFragmentation(const AllocatorReport& report,
                                       std::vector<Finding>& findings) {
  if (report.step < kSettledSteps || report.reserved_bytes <= 0) return;
  if (state_.fragmentation_ratio > kFragmentationRatio && !fragmentation_told_) {
    fragmentation_told_ = true;
    findings.push_back({FindingKind::kFragmentation, report.step,
                        Percent(state_.fragmentation_ratio) + " of the " +
                            FormatBytes(peak_reserved_bytes_) +
                            " reserved at the peak was in no block",
                        "try roundup_power2_divisions:4 or max_split_size_mb in the allocator "
                        "settings, or sequences padded to fewer lengths"});
  }
  const double idle = static_cast<double>(state_.cache_resident_bytes) /
                      static_cast<double>(report.reserved_bytes);
  idle_cache_steps_ = idle > kIdleCacheRatio ? idle_cache_steps_ + 1 : 0;
  if (idle_cache_steps_ >= kIdleCacheSteps && !idle_cache_told_) {
    idle_cache_told_ = true;
    findings.push_back({FindingKind::kIdleCache, report.step,
                        FormatBytes(state_.cache_resident_bytes) + " (" + Percent(idle) +
                            ") of reserved memory has been idle after each of the last " +
                            std::to_string(kIdleCacheSteps) + " steps",
                        "harmless to this job: the step itself may need it; other processes on "
                        "the device cannot use it until torch.cuda.empty_cache()"});
  }
}

void MemoryMonitor::CheckCounters(const AllocatorReport& report, std::vector<Finding>& findings) {
  const AllocatorReport before = last_.value_or(AllocatorReport{});
  if (report.alloc_retries > before.alloc_retries) {
    findings.push_back({FindingKind::kRetries, report.step,
                        "the allocator released its cache " +
                            std::to_string(report.alloc_retries - before.alloc_retries) +
                            " times to serve a request: each one synchronises the device",
                        "the config is at the edge of memory: take a smaller micro-batch or more "
                        "checkpointing"});
  }
  if (report.ooms > before.ooms) {
    findings.push_back({FindingKind::kOutOfMemory, report.step,
                        std::to_string(report.ooms - before.ooms) + " requests failed with " +
                            FormatBytes(report.reserved_bytes) + " reserved and " +
                            FormatBytes(report.allocated_bytes) + " allocated",
                        "run hbmtune tune for this workload and device"});
  }
}

}  // namespace hbmtune

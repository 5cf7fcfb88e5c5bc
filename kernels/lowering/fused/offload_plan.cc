#include "kernels/lowering/fused/offload_plan.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "kernels/lowering/fused/saved.h"

namespace hbmtune::lowering {

int64_t OffloadUnits(const Workload& workload, const TrainConfig& config) {
  const int64_t every = config.checkpoint.every;
  return every == 0 ? workload.model.layers : (workload.model.layers + every - 1) / every;
}

std::vector<bool> PlanOffload(const Workload& workload, const TrainConfig& config,
                              const std::vector<int64_t>& allocated_at_end,
                              int64_t device_bytes) {
  const OffloadConfig& offload = config.offload;
  const int64_t units = OffloadUnits(workload, config);
  if (offload.activations == ActivationOffload::kNone) return {};
  if (offload.activations == ActivationOffload::kCheckpoints) {
    return std::vector<bool>(units, true);
  }
  const auto nearest = std::llround(offload.keep_ratio * static_cast<double>(units));
  const int64_t kept = std::max<int64_t>(nearest, offload.keep_ratio > 0 ? 1 : 0);
  // The last layers would still be on their way when the backward pass wants them back. A model
  // of few layers waits for them rather than keep much of itself.
  const int64_t kept_last = std::max(kept, std::min(kLayersInFlight, units / 4));
  std::vector<bool> away(units, false);
  for (int64_t i = kept; i < units - kept_last; ++i) {
    away[i] = device_bytes == 0 ||
              static_cast<double>(allocated_at_end[i]) >
                  offload.pressure_ratio * static_cast<double>(device_bytes);
  }
  return away;
}

std::vector<int64_t> AllocatedAt(const Program& program, const std::vector<size_t>& positions) {
  std::unordered_map<StorageId, int64_t> live;
  std::vector<int64_t> allocated;
  int64_t bytes = 0;
  for (size_t i = 0; i < program.code.size() && allocated.size() < positions.size(); ++i) {
    if (i == positions[allocated.size()]) allocated.push_back(bytes);
    if (const auto* a = std::get_if<Allocate>(&program.code[i])) {
      if (a->space == MemorySpace::kPinned) continue;
      live[a->storage] = a->bytes;
      bytes += a->bytes;
    } else if (const auto* f = std::get_if<Free>(&program.code[i])) {
      bytes -= live[f->storage];
      live[f->storage] = 0;
    }
  }
  return allocated;
}

}  // namespace hbmtune::lowering

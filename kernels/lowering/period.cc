#include "kernels/lowering/period.h"

#include <numeric>

namespace hbmtune::lowering {

std::optional<int64_t> LayerPeriod(const Workload& workload, const TrainConfig& config) {
  const bool buckets = workload.world_size > 1 || UsesDdp(workload.framework) ||
                       UsesDeepspeed(workload.framework) || config.zero.stage > 0;
  const bool offloads = config.offload.optimizer != OptimizerOffload::kNone ||
                        config.offload.activations != ActivationOffload::kNone;
  if (buckets || offloads) return std::nullopt;
  int64_t period = 1;
  for (int64_t every : {config.checkpoint.every, config.checkpoint.attention,
                        config.checkpoint.mlp}) {
    if (every > 1) period = std::lcm(period, every);
  }
  return period;
}

}  // namespace hbmtune::lowering

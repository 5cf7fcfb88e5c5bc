#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

// Configs and results in people's words.
namespace hbmtune::client {

// "llama2-13b · full fine-tune · adamw · seq 2048 · hf-sdpa+deepspeed".
std::string DescribeWorkload(const Workload& workload);

// One idea a line: batch, checkpointing, precision, partitioning and offload, allocator. What is
// at its default is passed over, but for batch, checkpointing and precision.
std::vector<std::string> DescribeConfig(const TrainConfig& config, Framework framework);

// The same on one line.
std::string DescribeConfigShort(const TrainConfig& config, Framework framework);

// One setting each: "micro-batch 8", "accumulation 1", "checkpoint every layer", …
std::vector<std::string> DescribeParts(const TrainConfig& config, Framework framework);

// "allocator.max-split-size-mb 128".
std::string DescribeField(const TrainConfig& config, const std::string& path);

// "3,840 legal configs, 12 that differ in more than micro-batch".
std::string DescribeSpace(int64_t legal, int64_t settings);

// What a trial came to, whether measured or modelled.
struct Figures {
  double tokens_per_second = 0;
  double step_seconds = 0;
  int64_t peak_bytes = 0;  // used, or what is known of it
  int64_t host_bytes = 0;
  int64_t capacity_bytes = 0;
};
Figures FiguresOf(const Estimate& estimate);
Figures FiguresOf(const Measurement& measurement);

// "PREDICTED (peak −3 %…+2 %)"; without the bracket when the interval is empty.
std::string DescribeEvidence(Evidence evidence, const Interval& interval);

// What keeps a config from fitting: too little device memory, host memory, or both.
bool DeviceIsShort(const Estimate& estimate);
bool HostIsShort(const Estimate& estimate, int64_t host_ceiling_bytes);  // 0: no limit

// "112.96 GiB of host memory, of which 10.00 GiB may be used".
std::string DescribeHostNeed(const Estimate& estimate, int64_t host_ceiling_bytes);

// "weights 24.24 GiB · gradients 24.24 GiB · outside the allocator 1.20 GiB": largest first,
// without what is under a thousandth of the whole.
std::string DescribeBreakdown(const std::vector<CategoryBytes>& breakdown);

}  // namespace hbmtune::client
